"""Lets Spark find the format ``chasqui``: installing the package is enough."""

from tambomq.spark.formats.chasqui.source import ChasquiSource as DefaultSource

__all__ = ["DefaultSource"]
