"""The web application of the console: pages, static files and the API, all guarded alike."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tambomq.console.http.api import Endpoint, allowed, answers, api_endpoint, problem_response
from tambomq.console.http.console import Console
from tambomq.console.http.openapi import description
from tambomq.console.http.problems import Problem
from tambomq.console.http.routes import OPENAPI, OWN_ROUTES, PREFIX, ROUTES
from tambomq.console.http.session import session_endpoints
from tambomq.console.http.static import StaticFiles, packaged, static_response

PAGES: Final = (
    *("/", "/queue", "/message", "/dead-letters", "/workers", "/schedules"),
    *("/pipeline", "/send", "/audit", "/login"),
)
"""Paths that show the shell; its script draws the page."""

CSP: Final = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "font", "manifest")),
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def console_app(
    console: Console, *, plain_index: str = "", files: StaticFiles | None = None
) -> Starlette:
    """Return the application. *plain_index* is shown at ``/`` to programs that want no HTML."""
    shown = files or packaged()

    async def page(request: Request) -> Response:
        accepted = request.headers.get("accept", "")
        if plain_index and request.url.path == "/" and "text/html" not in accepted:
            return PlainTextResponse(plain_index, headers={"Vary": "Accept"})
        headers = {"Cache-Control": "no-cache", "Vary": "Accept"}
        return Response(shown.shell, headers=headers, media_type="text/html; charset=utf-8")

    async def static(request: Request) -> Response:
        return static_response(shown, request)

    return Starlette(
        routes=[
            *(Route(path, page) for path in PAGES),
            Route("/static/{path:path}", answers(static)),
            *_api_routes(console),
        ],
        middleware=[Middleware(_Guard, console=console)],
        exception_handlers={HTTPException: _on_http_error},
    )


def _api_routes(console: Console) -> list[Route]:
    by_path: dict[str, list[tuple[str, Endpoint]]] = defaultdict(list)
    for route in ROUTES:
        by_path[route.path].append((route.method, api_endpoint(console, route)))
    own = {**session_endpoints(console), OPENAPI: answers(_described(console))}
    for path, method in OWN_ROUTES.items():
        by_path[path].append((method, own[path]))
    return [
        Route(PREFIX + path, endpoint, methods=[method])
        for path, endpoints in by_path.items()
        for method, endpoint in endpoints
    ]


def _described(console: Console) -> Endpoint:
    async def answer(request: Request) -> Response:
        allowed(console, request, "viewer")
        return Response(description(), media_type="application/json")

    return answer


async def _on_http_error(_: Request, error: Exception) -> Response:
    """Return what Starlette refuses as JSON too: unknown paths, other methods."""
    if not isinstance(error, HTTPException):
        raise error
    kind, text = _REFUSED.get(error.status_code, ("http", str(error.detail)))
    response = problem_response(Problem(error.status_code, kind, text))
    response.headers.update(error.headers or {})
    return response


_REFUSED: Final[dict[int, Any]] = {
    404: ("not_found", "There is no such page: /api/v1/openapi.json describes the API."),
    405: ("method", "This path does not take this method: see the header Allow."),
}


class _Guard:
    """Checks the Host of every request, and sends the security headers with every response."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app, self._console = app, console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._console.hosts.check(Request(scope).headers.get("host", ""))
        except Problem as problem:
            await problem_response(problem)(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)
