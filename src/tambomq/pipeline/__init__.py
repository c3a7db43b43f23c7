"""The data pipeline: archives queues into a lake, reports on it, and repairs and moves queues."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tambomq.pipeline.lake.lake import Lake

__all__ = ["Lake"]

# Commands import this package too, and most of them do without Spark.
_LATER = {"Lake": "lake.lake"}


def __getattr__(name: str) -> Any:
    """Import what needs Spark when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
