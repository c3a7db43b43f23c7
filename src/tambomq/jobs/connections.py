"""The queue clients of a `Jobs`: one per event loop, and a blocking one per process.

They are made at their first use, so that neither an import nor a fork shares a connection.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from typing import Any, Final

from tambomq.chasqui.blocking_queue import BlockingQueue
from tambomq.chasqui.endpoint import endpoint_of
from tambomq.chasqui.queue import Queue
from tambomq.settings.load import load
from tambomq.store.endpoint import URL, Endpoint

SHARED: Final = (
    *("tls", "credential_provider", "group", "dialect"),
    *("events_enabled", "journal", "max_stream_len"),
)
"""Options of `Queue` that a `Worker` of its jobs needs too. Not ``patience_s``: how long an add may
take says nothing of the worker."""


class Connections:
    """Makes the clients of queue *name*; *options* are those of `Queue`."""

    def __init__(
        self, name: str, redis_url: str | Endpoint | None, options: dict[str, Any]
    ) -> None:
        # An unknown option is an error here, where it is written.
        inspect.signature(Queue).bind(name, **options)
        self._name, self._options = name, options
        self._found: str | Endpoint | None = redis_url
        self.make_queue: Callable[..., Queue] = Queue
        """Makes the clients of event loops; tracing replaces it."""
        self.make_blocking: Callable[..., BlockingQueue] = BlockingQueue
        """Makes the clients of threads; tracing replaces it."""
        self._queues: dict[tuple[int, asyncio.AbstractEventLoop], Queue] = {}
        self._blocking: dict[int, BlockingQueue] = {}

    @property
    def redis_url(self) -> str | Endpoint:
        """The server: as given, or that of the settings when it is needed first."""
        if self._found is None:
            server = load().server
            self._found = server.redis_url or URL.replace("6379", str(server.redis_port))
        return self._found

    @redis_url.setter
    def redis_url(self, url: str | Endpoint) -> None:
        self._found = url
        self._queues, self._blocking = {}, {}

    @property
    def endpoint(self) -> Endpoint:
        """The server, with TLS and the login of the options."""
        tls, provider = self._options.get("tls", False), self._options.get("credential_provider")
        return endpoint_of(self.redis_url, tls=tls, provider=provider)

    @property
    def worker_options(self) -> dict[str, Any]:
        """The options that workers share with the clients."""
        known = {name: self._options[name] for name in SHARED if name in self._options}
        return {"redis_url": self.redis_url} | known

    @property
    def queue(self) -> Queue:
        """The client of the running event loop."""
        # The process too: a child that was forked in a coroutine has the loop of its parent.
        at = os.getpid(), asyncio.get_running_loop()
        found = self._queues.get(at)
        if found is None:
            for pid, loop in list(self._queues):
                if loop.is_closed():
                    self._queues.pop((pid, loop), None)
            found = self._queues[at] = self.make_queue(
                self._name, redis_url=self.redis_url, **self._options
            )
        return found

    @property
    def blocking_queue(self) -> BlockingQueue:
        """The client of this process, for all its threads."""
        pid = os.getpid()
        found = self._blocking.get(pid)
        if found is None:
            made = self.make_blocking(self._name, redis_url=self.redis_url, **self._options)
            # Of two threads that come here at once, one wins; the other's is not connected yet.
            found = self._blocking.setdefault(pid, made)
        return found

    async def close(self) -> None:
        """Close the client of the running loop; the next use opens another."""
        queue = self._queues.pop((os.getpid(), asyncio.get_running_loop()), None)
        if queue is not None:
            await queue.close()

    def close_blocking(self) -> None:
        """Close the blocking client of this process; the next use opens another."""
        queue = self._blocking.pop(os.getpid(), None)
        if queue is not None:
            queue.close()
