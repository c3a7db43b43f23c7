"""The HTTP component: health, readiness and metrics of all components, for operators.

It answers while the others start and stop, so it waits for none of them.
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

from tambomq.errors import ComponentFailed
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.health import ProcessHealth
from tambomq.serve.http_limits import LIMITS, HttpLimits, limited
from tambomq.serve.listeners import cannot_open
from tambomq.serve.metrics import Metrics
from tambomq.serve.ready_file import report
from tambomq.serve.taken_ports import ENDPOINTS
from tambomq.settings.load import HttpSettings
from tambomq.text import format_address

INDEX: Final = """\
TamboMQ

/healthz   whether each component serves; 503 if one does not
/readyz    200 while all components are started, 503 before and from the first signal to stop
/metrics   numbers for Prometheus
/stats     the same numbers of the components as JSON
/endpoints where everything is, as in the ready file
"""
_NOT_KEPT: Final = {"Cache-Control": "no-store"}
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
# Probes time out sooner than this.
_GRACE_S: Final = 1


class HttpComponent:
    """Serves health and metrics over HTTP."""

    name = "http"

    def __init__(
        self, settings: HttpSettings, health: ProcessHealth, limits: HttpLimits = LIMITS
    ) -> None:
        self._at, self._limits = (settings.host, settings.port), limits
        self._app = app(health)
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def endpoints(self) -> Sequence[ServedEndpoint]:
        """The URL at which it listens."""
        url = f"http://{format_address(*self._at)}"
        return (ServedEndpoint(self.name, url, "health and metrics", f"curl {url}/healthz"),)

    async def start(self) -> None:
        """Listen. Raises `ComponentFailed`."""
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
            raise ComponentFailed(self.name, self._running.exception() or "the HTTP server ended")

    async def watch(self) -> None:
        """Raise `ComponentFailed` when the HTTP server ends by itself."""
        if self._running is not None:
            await asyncio.wait((self._running,))
        raise ComponentFailed(self.name, "the HTTP server ended")

    async def check(self) -> None:
        """Do nothing: a health request that arrives here was served."""

    async def metrics(self) -> Sequence[Metric]:
        """Return nothing: it has no metrics of its own."""
        return ()

    async def stop(self) -> None:
        """Answer open requests, and stop."""
        if self._server is not None and self._running is not None:
            self._server.should_exit = True
            with suppress(Exception):
                await self._running
        if self._socket is not None:
            self._socket.close()


def app(health: ProcessHealth) -> Starlette:
    """Return the web application for *health* and the metrics of its components."""
    metrics = Metrics(health)

    async def index(_: Request) -> Response:
        return PlainTextResponse(INDEX)

    async def healthz(_: Request) -> Response:
        found = await health.look()
        code = 200 if all(status.ok for status in found.values()) else 503
        statuses = {component: asdict(status) for component, status in found.items()}
        return JSONResponse(statuses, code, headers=_NOT_KEPT)

    async def readyz(_: Request) -> Response:
        text, code = ("ready\n", 200) if health.ready else ("not ready\n", 503)
        return PlainTextResponse(text, code, headers=_NOT_KEPT)

    async def numbers(_: Request) -> Response:
        return Response(await metrics.text(), headers=_NOT_KEPT, media_type=_PROMETHEUS)

    async def endpoints(_: Request) -> Response:
        places = [place for component in health.started_components for place in component.endpoints]
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
    """A uvicorn server that runs in our event loop and leaves signals to us."""

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
