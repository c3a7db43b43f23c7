"""KqueueMsgQ: framed messages over TCP, in memory, no delivery guarantee."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tambomq.kqueue.client import Consumer, Producer
from tambomq.kqueue.frames import Limits, Message
from tambomq.kqueue.model import Stats

if TYPE_CHECKING:
    from tambomq.kqueue.async_client import AsyncConsumer, AsyncProducer
    from tambomq.kqueue.server import KqueueServer

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "KqueueServer",
    "Limits",
    "Message",
    "Producer",
    "Stats",
]

# Importing asyncio takes a third of the start-up time of commands that do not need it.
_LAZY = {
    "AsyncConsumer": "async_client",
    "AsyncProducer": "async_client",
    "KqueueServer": "server",
}


def __getattr__(name: str) -> Any:
    """Import the names that need asyncio on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
