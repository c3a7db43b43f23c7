"""The HTTP component: health, readiness and metrics of all components, and the console.

It answers while the others start and stop, so it waits for none of them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tambomq.console.http.app import console_app
from tambomq.console.http.console import Console
from tambomq.console.http.login.origin import HostRule
from tambomq.console.http.problems import Problem
from tambomq.console.http.routes import LIVE, PREFIX
from tambomq.errors import ComponentFailed
from tambomq.runtime.tls_server import TlsServer
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.exposure import is_loopback
from tambomq.serve.health import ProcessHealth
from tambomq.serve.http_limits import LIMITS, HttpLimits, limited
from tambomq.serve.listeners import cannot_open, server_tls
from tambomq.serve.metrics.page import Metrics
from tambomq.serve.ready_file import report
from tambomq.serve.taken_ports import ENDPOINTS
from tambomq.settings.load import HttpSettings
from tambomq.text import format_address
from tambomq.tls import ServerTls

INDEX: Final = """\
TamboMQ

/healthz   whether each component serves; 503 if one does not
/readyz    200 while all components are started, 503 before and from the first signal to stop
/metrics   numbers for Prometheus
/stats     the same numbers of the components as JSON
/endpoints where everything is, as in the ready file
"""
_OF_CONSOLE: Final = """\
/          the console, in a browser
/api/v1/   what the console shows and does; described at /api/v1/openapi.json
"""
_Answer = Callable[[Request], Coroutine[Any, Any, Response]]
_NOT_KEPT: Final = {"Cache-Control": "no-store"}
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
# Probes time out sooner than this.
_GRACE_S: Final = 1


class HttpComponent:
    """Serves health and metrics over HTTP."""

    name = "http"

    def __init__(
        self,
        settings: HttpSettings,
        health: ProcessHealth,
        limits: HttpLimits = LIMITS,
        console: Console | None = None,
        *,
        is_optional: bool = True,
    ) -> None:
        self._at, self._limits = (settings.host, settings.port), limits
        self._tls = server_tls(self.name, settings)
        self._has_console, self._is_optional = console is not None, is_optional
        # On loopback only pages of other sites use other names: there a name is no way to be found.
        hosts = HostRule(settings.host, settings.allowed_host)
        self._app = app(health, console, hosts if is_loopback(settings.host) else None)
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def endpoints(self) -> Sequence[ServedEndpoint]:
        """The URL at which it listens."""
        url = f"http{'s' if self._tls else ''}://{format_address(*self._at)}"
        about = "console, health and metrics" if self._has_console else "health and metrics"
        return (ServedEndpoint(self.name, url, about, f"curl {url}/healthz"),)

    async def start(self) -> None:
        """Listen. Raises `ComponentFailed`."""
        host, port = self._at
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise cannot_open(self.name, self._at, error, is_optional=self._is_optional) from error
        self._at = host, self._socket.getsockname()[1]
        self._server = _Server(_config(self._app, self._limits, self._tls), self._limits)
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


def app(
    health: ProcessHealth, console: Console | None = None, hosts: HostRule | None = None
) -> Starlette:
    """Return the web application for *health* and metrics; all other paths are *console*'s.

    What names queues or addresses is told only under the names of *hosts*, if there are any.
    """
    metrics = Metrics(health)

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

    paths: dict[str, _Answer] = {"/healthz": healthz, "/readyz": readyz}
    named = {"/metrics": numbers, "/stats": stats, ENDPOINTS: endpoints}
    paths |= {path: _guarded(answer, hosts) for path, answer in named.items()}
    application = Starlette(routes=[Route(path, answer) for path, answer in paths.items()])
    if console is None:
        application.add_route("/", _index)
    else:
        # No mount: its pattern does not match all paths that can be sent.
        application.router.default = console_app(console, plain_index=INDEX + _OF_CONSOLE)
    return application


def _guarded(answer: _Answer, hosts: HostRule | None) -> _Answer:
    async def checked(request: Request) -> Response:
        try:
            if hosts is not None:
                hosts.check(request.headers.get("host", ""))
        except Problem as problem:
            return PlainTextResponse(f"{problem.title}\n", problem.status, headers=_NOT_KEPT)
        return await answer(request)

    return checked


async def _index(_: Request) -> Response:
    return PlainTextResponse(INDEX)


class _Server(uvicorn.Server):
    """A uvicorn server that runs in our event loop and leaves signals to us."""

    def __init__(self, config: uvicorn.Config, limits: HttpLimits) -> None:
        super().__init__(config)
        self._limits, self.opened = limits, asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # no generator is needed
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is None or sockets is None:
            await super().startup(sockets)
        else:
            # uvicorn would accept any number of connections whose handshakes never end.
            server: Any = TlsServer(sockets, self.config.ssl, self)
            await server.start_serving()
            self.servers, self.started = [server], True
        self.opened.set()

    # ── the policy of TLS connections ────────────────────────────────────────

    @property
    def handshake_s(self) -> float:
        return self._limits.headers_s

    def make_protocol(self) -> asyncio.BaseProtocol:
        make: Any = self.config.http_protocol_class
        made: asyncio.BaseProtocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    def admits(self, handshakes: int) -> bool:
        return handshakes < self._limits.max_connections

    def on_timeout(self) -> None:
        pass


def _config(app: Starlette, limits: HttpLimits, tls: ServerTls | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=limited(replace(limits, streams=frozenset({PREFIX + LIVE}))),
        ssl_context_factory=(lambda *_: tls.context()) if tls else None,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
