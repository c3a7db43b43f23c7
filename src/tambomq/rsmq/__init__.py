"""RSMQ: queues with visibility timeouts, stored in a zset and a hash."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tambomq.errors import Reject
from tambomq.rsmq.backoff import Backoff
from tambomq.rsmq.client import Rsmq
from tambomq.rsmq.model import Message, QueueAttributes, QueueStats

if TYPE_CHECKING:
    from tambomq.rsmq.async_client import AsyncRsmq
    from tambomq.rsmq.settling import WorkerStats
    from tambomq.rsmq.worker import RsmqWorker

__all__ = [
    "AsyncRsmq",
    "Backoff",
    "Message",
    "QueueAttributes",
    "QueueStats",
    "Reject",
    "Rsmq",
    "RsmqWorker",
    "WorkerStats",
]

# They bring asyncio with them, a third of what a command that does not need it takes to start.
_LATER = {"AsyncRsmq": "async_client", "RsmqWorker": "worker", "WorkerStats": "settling"}


def __getattr__(name: str) -> Any:
    """Import what needs asyncio when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
