"""Lets Spark find the format ``rsmq``: installing the package is enough."""

from tambomq.spark.formats.rsmq.source import RsmqSource as DefaultSource

__all__ = ["DefaultSource"]
