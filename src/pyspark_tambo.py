"""Lets Spark find the format ``tambo``: installing the package is enough."""

from tambomq.spark.tambo import TamboSource as DefaultSource

__all__ = ["DefaultSource"]
