"""Lets Spark find the format ``gomq``: installing the package is enough."""

from tambomq.spark.formats.gomq.source import GomqSource as DefaultSource

__all__ = ["DefaultSource"]
