"""The connections of one event loop, and the timer that watches for another primary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from tambomq.store.aio_connection import AioConnection
from tambomq.store.aio_pubsub import PubSub
from tambomq.store.primary.sentinels import CHECK_EVERY_S
from tambomq.store.roundtrip import Address

Refresh: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Asks the sentinels, and leaves a server that is not the primary any more."""


class LoopConnections:
    """The connections of one event loop: asyncio sockets cannot be used from another."""

    def __init__(self, pubsub: PubSub) -> None:
        """Begin with none; *pubsub* connects when it is first used."""
        self.pubsub = pubsub
        self.connections: dict[Address | None, AioConnection] = {}
        self.opening: dict[Address | None, asyncio.Task[AioConnection]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._refreshing: asyncio.Task[None] | None = None

    def opened(self, node: Address | None, task: asyncio.Task[AioConnection]) -> None:
        """Keep the connection, even if the tasks that wanted it were cancelled."""
        del self.opening[node]
        if not task.cancelled() and task.exception() is None:
            self.connections[node] = task.result()

    def watch(self, refresh: Refresh) -> None:
        """Call *refresh* again and again, as long as a connection is open."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(CHECK_EVERY_S, self._refresh, refresh)

    def _refresh(self, refresh: Refresh) -> None:
        self._timer = None
        connection = self.connections.get(None)
        is_usable = connection is not None and connection.is_usable
        # One that is being opened has found this timer running, so it starts none.
        if self.pubsub.is_open or is_usable or self.opening:
            self._refreshing = asyncio.ensure_future(refresh())
            self._refreshing.add_done_callback(partial(self._refreshed, refresh))

    def _refreshed(self, refresh: Refresh, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.watch(refresh)

    def leave_former(self, primary: Address) -> None:
        """Abort connections to another server than the *primary*: its replies come too late."""
        connection = self.connections.get(None)
        if connection is not None and connection.node != primary:
            connection.abort()
        self.pubsub.leave_former(primary)

    def close(self) -> None:
        """Close all connections, and stop watching."""
        connections, self.connections = self.connections, {}
        for connection in connections.values():
            connection.close()
        self.pubsub.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._refreshing is not None:
            self._refreshing.cancel()
