"""Lets Spark find the format ``chasqui``: installing the package is enough."""

from tambomq.spark.chasqui import ChasquiSource as DefaultSource

__all__ = ["DefaultSource"]
