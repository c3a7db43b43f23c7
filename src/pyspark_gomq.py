"""Lets Spark find the format ``gomq``: installing the package is enough."""

from tambomq.spark.gomq import GomqSource as DefaultSource

__all__ = ["DefaultSource"]
