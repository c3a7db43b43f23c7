"""The process inside Envoy: the service, its ASGI application, and a control socket to the parent.

Envoy loads `app`. It reads its `ChildConfig` from the environment, where other users cannot see the
password of a URL, and inherits the control socket. Over it the child reports its start, or why that
failed, and its statistics, and answers requests; each line is JSON. When the socket is closed, the
parent has died, and the child ends itself.
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
from tambomq.access.denials import Denial
from tambomq.access.directory import NO_ACCESS, AccessOptions, UserDirectory
from tambomq.errors import TamboError
from tambomq.gomq.envoy.app import GomqApp, Scope
from tambomq.gomq.envoy.app_call import Receive, Send
from tambomq.gomq.model import GomqStats, Options
from tambomq.gomq.server.auth import Authenticator
from tambomq.gomq.server.guarded_service import GuardedService
from tambomq.gomq.server.service import Service
from tambomq.store.aio import AsyncStore

APP: Final = f"{__name__}:app"
CONFIG_VARIABLE: Final = "_TAMBOMQ_GOMQ_CONFIG"
"""The environment variable that holds the `ChildConfig`."""

_REPORT_EVERY_S: Final = 1.0
# Shorter than the parent's timeout, so that the parent learns the reason.
_STORE_WITHIN_S: Final = 2.0

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChildConfig:
    """What the child serves, as its parent configures it."""

    url: str = field(repr=False)
    options: Options
    token: str | None = field(repr=False)
    control_fd: int
    """The file descriptor of the control socket."""
    log_level: str
    access: AccessOptions = NO_ACCESS


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request of the parent: ``ping``, or ``close`` with *grace_s* seconds for open calls."""

    id: int
    command: str
    grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ControlReply:
    """A reply to the request *id*; 0 for a report that the child sends by itself."""

    id: int = 0
    stats: GomqStats | None = None
    denials: list[Denial] = field(default_factory=list)
    failed: str | None = None
    """Why the request, or with id 0 the start, has failed."""


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a call, or handle the lifespan of the process."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    else:
        await _State.serve(scope, receive, send)


class _State:
    """The application of this process; Envoy passes no state to `app`."""

    serve: Callable[[Scope, Receive, Send], Awaitable[None]]


async def _lifespan(receive: Receive, send: Send) -> None:
    await receive()
    child = Child(msgspec.json.decode(os.environ.pop(CONFIG_VARIABLE), type=ChildConfig))
    try:
        _State.serve = await child.start()
    except Exception as error:  # noqa: BLE001  (Envoy does not report it, the parent does)
        await send(
            {"type": "lifespan.startup.failed", "message": await child.report_failure(error)}
        )
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await child.stop()
    await send({"type": "lifespan.shutdown.complete"})


class Child:
    """The service with its application and its control socket."""

    def __init__(self, config: ChildConfig) -> None:
        log.set_up(config.log_level, "json")
        self._store = AsyncStore(config.url)
        self._service = Service(self._store, config.options)
        limit = config.options.max_message_bytes
        access, self._users = config.access, None
        service: Service | GuardedService = self._service
        if access.is_on:
            self._users = UserDirectory("GOMQ", access, self._store)
            service = GuardedService(self._service, self._store)
        authenticator = Authenticator(config.token, self._users)
        self._app = GomqApp(service, authenticator, max_message_bytes=limit)
        self._control = socket.socket(fileno=config.control_fd)
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> GomqApp:
        """Start the service; return the application that answers calls."""
        asyncio.get_running_loop().set_exception_handler(_handle)
        reader, self._writer = await asyncio.open_connection(sock=self._control)
        if self._users:
            await self._users.start()
        await self._service.start()
        tasks = (self._serve_control(reader), self._report(), self._app.poll_disconnects())
        self._tasks += map(asyncio.ensure_future, tasks)
        return self._app

    async def report_failure(self, error: Exception) -> str:
        """Send the reason to the parent, and return it."""
        text = str(error) if isinstance(error, TamboError) else f"{type(error).__name__}: {error}"
        text = log.mask_url(text)
        await self._send(ControlReply(failed=text))
        await self._store.close()
        return text

    async def stop(self) -> None:
        """Stop the service and end all calls: their clients are disconnected already."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._app.close(0)
        await self._service.stop()
        if self._users:
            await self._users.stop()
        await self._store.close()

    async def _report(self) -> None:
        while True:
            await self._send(ControlReply(stats=self._service.stats, denials=self._denials()))
            await asyncio.sleep(_REPORT_EVERY_S)

    async def _serve_control(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while line := await reader.readline():
                await self._answer(msgspec.json.decode(line, type=ControlRequest))
        _log.warning("stopping: the parent process has ended")
        os.kill(os.getpid(), signal.SIGTERM)

    async def _answer(self, request: ControlRequest) -> None:
        failed = None
        try:
            if request.command == "close":
                await self._app.close(request.grace_s)
            else:
                async with asyncio.timeout(_STORE_WITHIN_S):
                    await self._service.ping()
        except TamboError as error:
            failed = str(error)
        except TimeoutError:
            failed = "Redis does not answer"
        reply = ControlReply(request.id, self._service.stats, self._denials(), failed)
        await self._send(reply)

    def _denials(self) -> list[Denial]:
        return self._users.denials.list() if self._users else []

    async def _send(self, reply: ControlReply) -> None:
        if self._writer:
            with suppress(OSError):
                self._writer.write(msgspec.json.encode(reply) + b"\n")
                await self._writer.drain()


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Envoy delivers the rest of a request to a call that was cancelled while waiting for it.
    if not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)
