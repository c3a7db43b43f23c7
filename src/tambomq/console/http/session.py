"""The routes of the console itself: session, log-in, log-out and live updates."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

import tambomq
from tambomq.console.http.api import (
    Endpoint,
    allowed,
    answers,
    check_csrf,
    decode_body,
    json_response,
    record,
)
from tambomq.console.http.console import Console, address_of, cookie_name, is_secure
from tambomq.console.http.live import EventStream
from tambomq.console.http.login.access import Identity, is_current
from tambomq.console.http.login.origin import check_origin
from tambomq.console.http.problems import Problem
from tambomq.console.http.requests import LoginRequest, SessionInfo
from tambomq.console.http.routes import LIVE, LOGIN, LOGOUT, SESSION


def session_endpoints(console: Console) -> Mapping[str, Endpoint]:
    """Return these endpoints by their paths."""

    async def session(request: Request) -> Response:
        check_origin(request.headers, request.url.scheme)
        return json_response(session_info(console, console.identify(request)))

    async def log_in(request: Request) -> Response:
        return await _log_in(console, request)

    async def log_out(request: Request) -> Response:
        return await _log_out(console, request)

    async def live(request: Request) -> Response:
        identity = allowed(console, request, "viewer")
        cookie, feed = request.cookies.get(cookie_name(request), ""), console.feed_of(identity)
        has_session = console.access.session(cookie) is identity
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        feed.enter()
        # A stream may outlast the session that has opened it.
        return EventStream(
            feed,
            lambda: (
                is_current(identity)
                and (not has_session or console.access.session(cookie) is identity)
            ),
        )

    paths = {SESSION: session, LOGIN: log_in, LOGOUT: log_out, LIVE: live}
    return {path: answers(endpoint) for path, endpoint in paths.items()}


def session_info(console: Console, identity: Identity | None) -> SessionInfo:
    """Return what *identity* may do."""
    return SessionInfo(
        user=identity.user if identity else "",
        role=identity.role if identity else None,
        csrf=identity.csrf if identity else "",
        read_only=console.options.read_only,
        needs_login=identity is None,
        can_log_out=console.options.needs_login
        and identity is not None
        and not identity.by_certificate,
        version=tambomq.__version__,
    )


async def _log_in(console: Console, request: Request) -> Response:
    check_origin(request.headers, request.url.scheme)
    body = await decode_body(LoginRequest, request)
    if not console.options.needs_login:
        return json_response(session_info(console, console.access.anonymous))
    console.require_patience(request)
    caller = console.access.program(body.token)
    if caller is None:
        console.login_limit.failed(address_of(request))
        await record(console, request, None, ("log in", ""), "refused", "wrong token")
        raise Problem(401, "wrong_token", "The token is not valid.")
    cookie, identity = console.access.log_in(caller.role, caller)
    await record(console, request, identity, ("log in", ""), "done")
    response = json_response(session_info(console, identity))
    response.set_cookie(
        cookie_name(request),
        cookie,
        max_age=int(console.options.session_s),
        path="/",
        secure=is_secure(request),
        httponly=True,
        samesite="strict",
    )
    return response


async def _log_out(console: Console, request: Request) -> Response:
    check_origin(request.headers, request.url.scheme)
    identity = console.identify(request)
    if identity is not None:
        check_csrf(identity, request)
    name = cookie_name(request)
    if identity is not None and (cookie := request.cookies.get(name)):
        console.access.log_out(cookie)
        await record(console, request, identity, ("log out", ""), "done")
    response = json_response(session_info(console, console.access.anonymous))
    response.delete_cookie(
        name, path="/", secure=is_secure(request), httponly=True, samesite="strict"
    )
    return response
