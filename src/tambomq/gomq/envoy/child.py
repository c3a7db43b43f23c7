"""What runs inside Envoy: the service, its ASGI application, and a line to the parent.

`app` is what Envoy loads. It finds its `Orders` in the environment, where a password in a URL is
seen by nobody else, and a socket to the parent among its open files. On that line the child tells
that it is up or why not, and how it goes, and answers what it is asked; all as lines of JSON. When
the line breaks, the parent is gone and the child ends itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tambomq import log
from tambomq.errors import TamboError
from tambomq.gomq.asgi import GomqApp, Scope
from tambomq.gomq.asgi_call import Receive, Send
from tambomq.gomq.caller import Gate
from tambomq.gomq.model import Options
from tambomq.gomq.service import Service, Stats
from tambomq.store.aio import AsyncStore

APP: Final = f"{__name__}:app"
ORDERS: Final = "_TAMBOMQ_GOMQ_ORDERS"
"""The variable."""

_TELL_EVERY_S: Final = 1.0
# Less than the parent waits: it shall hear what is wrong.
_STORE_WITHIN_S: Final = 2.0

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Orders:
    """What the parent wants served."""

    url: str = field(repr=False)
    options: Options
    token: str | None = field(repr=False)
    line: int
    """The number of the open file that is the socket to the parent."""
    log_level: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A question on the line: how it goes, or to take no more calls within *grace_s* seconds."""

    id: int
    what: str
    grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Tell:
    """What the child says: in answer to *id*, or on its own."""

    id: int = 0
    stats: Stats | None = None
    failed: str | None = None
    """Why it cannot do it."""


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a call, or the life of the process."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    else:
        await _State.serve(scope, receive, send)


class _State:
    """The one application of this process; Envoy hands us nothing to keep it in."""

    serve: Callable[[Scope, Receive, Send], Awaitable[None]]


async def _live(receive: Receive, send: Send) -> None:
    await receive()
    child = Child(msgspec.json.decode(os.environ.pop(ORDERS), type=Orders))
    try:
        _State.serve = await child.start()
    except Exception as error:  # noqa: BLE001  (Envoy has no words for it, the parent has)
        await send({"type": "lifespan.startup.failed", "message": await child.give_up(error)})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await child.stop()
    await send({"type": "lifespan.shutdown.complete"})


class Child:
    """The service with its application and its line to the parent."""

    def __init__(self, orders: Orders) -> None:
        log.set_up(orders.log_level, "json")
        self._store = AsyncStore(orders.url)
        self._service = Service(self._store, orders.options)
        limit = orders.options.max_message_bytes
        self._app = GomqApp(self._service, Gate(orders.token), max_message_bytes=limit)
        self._line = socket.socket(fileno=orders.line)
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> GomqApp:
        """Return what serves calls."""
        asyncio.get_running_loop().set_exception_handler(_handle)
        reader, self._writer = await asyncio.open_connection(sock=self._line)
        await self._service.start()
        duties = (self._obey(reader), self._report(), self._app.listen())
        self._tasks += map(asyncio.ensure_future, duties)
        return self._app

    async def give_up(self, error: Exception) -> str:
        """Tell the parent why, and return it."""
        text = str(error) if isinstance(error, TamboError) else f"{type(error).__name__}: {error}"
        text = log.mask_url(text)
        await self._tell(Tell(failed=text))
        await self._store.close()
        return text

    async def stop(self) -> None:
        """End what goes on; calls that are still under way have lost their clients."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._app.close(0)
        await self._service.stop()
        await self._store.close()

    async def _report(self) -> None:
        while True:
            await self._tell(Tell(stats=self._service.stats))
            await asyncio.sleep(_TELL_EVERY_S)

    async def _obey(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while line := await reader.readline():
                await self._answer(msgspec.json.decode(line, type=Ask))
        _log.warning("the process that started this one is gone")
        os.kill(os.getpid(), signal.SIGTERM)

    async def _answer(self, ask: Ask) -> None:
        failed = None
        try:
            if ask.what == "close":
                await self._app.close(ask.grace_s)
            else:
                async with asyncio.timeout(_STORE_WITHIN_S):
                    await self._service.ping()
        except TamboError as error:
            failed = str(error)
        except TimeoutError:
            failed = "the store does not answer"
        await self._tell(Tell(ask.id, self._service.stats, failed))

    async def _tell(self, tell: Tell) -> None:
        if self._writer:
            with suppress(OSError):
                self._writer.write(msgspec.json.encode(tell) + b"\n")
                await self._writer.drain()


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Envoy brings the rest of a request to a call that was ended while it waited for it.
    if not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)
