"""Lets Spark find the format ``tambo``: installing the package is enough."""

from tambomq.spark.formats.tambo.source import TamboSource as DefaultSource

__all__ = ["DefaultSource"]
