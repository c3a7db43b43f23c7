"""Lets Spark find the format ``rsmq``: installing the package is enough."""

from tambomq.spark.rsmq import RsmqSource as DefaultSource

__all__ = ["DefaultSource"]
