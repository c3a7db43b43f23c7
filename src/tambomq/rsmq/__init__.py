"""RSMQ: queues with visibility timeouts, stored in a zset and a hash."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tambomq.errors import Reject
from tambomq.rsmq.client import Rsmq
from tambomq.rsmq.model import Message, QueueAttributes, QueueBounds, QueueStats
from tambomq.rsmq.worker.backoff import Backoff

if TYPE_CHECKING:
    from tambomq.rsmq.async_client import AsyncRsmq
    from tambomq.rsmq.worker.settler import WorkerStats
    from tambomq.rsmq.worker.worker import RsmqWorker

__all__ = [
    "AsyncRsmq",
    "Backoff",
    "Message",
    "QueueAttributes",
    "QueueBounds",
    "QueueStats",
    "Reject",
    "Rsmq",
    "RsmqWorker",
    "WorkerStats",
]

# Importing asyncio takes a third of the start-up time of commands that do not need it.
_LAZY = {
    "AsyncRsmq": "async_client",
    "RsmqWorker": "worker.worker",
    "WorkerStats": "worker.settler",
}


def __getattr__(name: str) -> Any:
    """Import the names that need asyncio on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
