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

# They bring asyncio with them, a third of what a command that does not need it takes to start.
_LATER = {
    "AsyncConsumer": "async_client",
    "AsyncProducer": "async_client",
    "KqueueServer": "server",
}


def __getattr__(name: str) -> Any:
    """Import what needs asyncio when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
