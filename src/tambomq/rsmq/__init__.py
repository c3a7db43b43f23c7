"""RSMQ: queues with visibility timeouts, stored in a zset and a hash."""

from __future__ import annotations

from tambomq.rsmq.async_client import AsyncRsmq
from tambomq.rsmq.client import Rsmq
from tambomq.rsmq.model import Message, QueueAttributes, QueueStats

__all__ = ["AsyncRsmq", "Message", "QueueAttributes", "QueueStats", "Rsmq"]
