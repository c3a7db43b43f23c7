"""Spark data sources and sinks for queues: tables to read, stream and write."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tambomq.spark.launch import worker_requirements as needs

if TYPE_CHECKING:
    from tambomq.spark.launch.session import session
    from tambomq.spark.lease.admin import Leases
    from tambomq.spark.lease.verdicts import settle

__all__ = ["Leases", "session", "settle"]

# Spark's workers import this package too, and do not need the modules that start Spark.
_LATER = {"Leases": "lease.admin", "session": "launch.session", "settle": "lease.verdicts"}


def __getattr__(name: str) -> Any:
    """Import what the driver needs when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


# Here, because a worker runs this before it imports any compiled package.
needs.check()
