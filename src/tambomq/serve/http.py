"""The door for operators: health, readiness and numbers of all doors, over HTTP.

It answers while the others open and while they close, so it waits for none of them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tambomq.errors import DoorFailed
from tambomq.serve.door import Endpoint, Metric
from tambomq.serve.health import Health
from tambomq.serve.http_limits import LIMITS, HttpLimits, limited
from tambomq.serve.listening import cannot_open, spelled
from tambomq.serve.metrics import Metrics
from tambomq.serve.ready import report
from tambomq.serve.taken import ENDPOINTS
from tambomq.settings import HttpSettings

INDEX: Final = """\
TamboMQ

/healthz   whether each door serves; 503 if one does not
/readyz    200 while all doors are open, 503 before and from the first signal to stop
/metrics   numbers for Prometheus
/stats     the same numbers of the doors as JSON
/endpoints where everything is, as in the ready file
"""
_NOT_KEPT: Final = {"Cache-Control": "no-store"}
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
# A probe that lasts longer than this has been given up by whoever sent it.
_GRACE_S: Final = 1


class HttpDoor:
    """Health and numbers, over HTTP."""

    name = "http"

    def __init__(self, settings: HttpSettings, health: Health, limits: HttpLimits = LIMITS) -> None:
        self._at, self._limits = (settings.host, settings.port), limits
        self._app = app(health)
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """Where it listens."""
        url = f"http://{spelled(self._at)}"
        return (Endpoint(self.name, url, "health and metrics", f"curl {url}/healthz"),)

    async def start(self) -> None:
        """Listen. Raises `DoorFailed`."""
        host, port = self._at
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise cannot_open(self.name, self._at, error) from error
        self._at = host, self._socket.getsockname()[1]
        self._server = _Server(_config(self._app, self._limits))
        self._running = asyncio.ensure_future(self._server.serve([self._socket]))
        opened = asyncio.ensure_future(self._server.opened.wait())
        try:
            await asyncio.wait((opened, self._running), return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if self._running.done():
            raise DoorFailed(self.name, self._running.exception() or "the HTTP server ended")

    async def watch(self) -> None:
        """Wait for what should not happen: that it ends by itself."""
        if self._running is not None:
            await asyncio.wait((self._running,))
        raise DoorFailed(self.name, "the HTTP server ended")

    async def check(self) -> None:
        """Return: whoever hears this has been answered."""

    async def metrics(self) -> Sequence[Metric]:
        """Return nothing: it is for the numbers of others."""
        return ()

    async def stop(self) -> None:
        """Answer what was asked, and close."""
        if self._server is not None and self._running is not None:
            self._server.should_exit = True
            with suppress(Exception):
                await self._running
        if self._socket is not None:
            self._socket.close()


def app(health: Health) -> Starlette:
    """Return what answers requests about *health* and the numbers of its doors."""
    metrics = Metrics(health)

    async def index(_: Request) -> Response:
        return PlainTextResponse(INDEX)

    async def healthz(_: Request) -> Response:
        verdicts = await health.look()
        code = 200 if all(verdict.ok for verdict in verdicts.values()) else 503
        told = {door: asdict(verdict) for door, verdict in verdicts.items()}
        return JSONResponse(told, code, headers=_NOT_KEPT)

    async def readyz(_: Request) -> Response:
        said, code = ("ready\n", 200) if health.ready else ("not ready\n", 503)
        return PlainTextResponse(said, code, headers=_NOT_KEPT)

    async def numbers(_: Request) -> Response:
        return Response(await metrics.text(), headers=_NOT_KEPT, media_type=_PROMETHEUS)

    async def endpoints(_: Request) -> Response:
        places = [place for door in health.open_doors for place in door.endpoints]
        return JSONResponse(report(places), headers=_NOT_KEPT)

    async def stats(_: Request) -> Response:
        return JSONResponse(await metrics.stats(), headers=_NOT_KEPT)

    paths = {
        "/": index,
        "/healthz": healthz,
        "/readyz": readyz,
        "/metrics": numbers,
        "/stats": stats,
        ENDPOINTS: endpoints,
    }
    return Starlette(routes=[Route(path, answer) for path, answer in paths.items()])


class _Server(uvicorn.Server):
    """Runs in a loop that is somebody else's, and leaves the signals to them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.opened = asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # no generator is needed
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.opened.set()


def _config(app: Starlette, limits: HttpLimits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=limited(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
