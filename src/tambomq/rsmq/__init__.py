"""RSMQ: queues with visibility timeouts, stored in a zset and a hash."""

from __future__ import annotations

from tambomq.errors import Reject
from tambomq.rsmq.async_client import AsyncRsmq
from tambomq.rsmq.backoff import Backoff
from tambomq.rsmq.client import Rsmq
from tambomq.rsmq.model import Message, QueueAttributes, QueueStats
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
