"""Queues as tables of Spark: to be read, streamed and written."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tambomq.spark import needs

if TYPE_CHECKING:
    from tambomq.spark.driver import session

__all__ = ["session"]

# The workers of Spark import this package too, and have no use for what starts Spark.
_LATER = {"session": "driver"}


def __getattr__(name: str) -> Any:
    """Import what the driver needs when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


# Here, since a worker comes here before it imports anything that is compiled.
needs.check()
