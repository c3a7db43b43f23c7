"""The API's requests: checks the caller, decodes what it sends, calls the handler, and audits.

The order of the checks is that of their errors: origin, log-in, role, read-only mode, CSRF, input.
Host is checked before, for pages too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tambomq.console.actions.model import AuditEntry, Operation
from tambomq.console.http.audit import write_log
from tambomq.console.http.console import Console, address_of
from tambomq.console.http.login.access import Identity, Role, is_same
from tambomq.console.http.login.origin import check_origin
from tambomq.console.http.problems import Problem, problem_of
from tambomq.console.http.routes import ApiRoute
from tambomq.errors import AccessError, TamboError

S = TypeVar("S", bound=msgspec.Struct)
Endpoint = Callable[[Request], Awaitable[Response]]

CSRF: Final = "x-tambo-csrf"
MAX_BODY_BYTES: Final = 2 << 20
_JSON: Final = "application/json"
_TARGET: Final = ("queue", "id", "key")

_log = logging.getLogger(__name__)


def answers(endpoint: Endpoint) -> Endpoint:
    """Return *endpoint* with every error as JSON."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Problem as problem:
            return problem_response(problem)
        except TamboError as error:
            return problem_response(problem_of(error))
        except Exception:  # noqa: BLE001  (whatever it is, the caller gets JSON)
            _log.exception("%s %s failed", request.method, request.url.path)
            text = "The console failed, which is a bug: the log of its process has the details."
            return problem_response(Problem(500, "internal", text))

    return answer


def api_endpoint(console: Console, route: ApiRoute[Any, Any, Any]) -> Endpoint:
    """Return the endpoint of *route*."""

    async def answer(request: Request) -> Response:
        audit = _Audit(console, route, request)
        try:
            audit.identity = allowed(console, request, route.role)
            query = decode_query(route.query, request)
            body = await decode_body(route.body, request)
            audit.is_dry_run = getattr(body, "dry_run", False)
            reply = await route.handle(console.parts_of(audit.identity), query, body)
        except Problem as problem:
            refused = problem.status in (401, 403, 409, 429)
            await audit.write("refused" if refused else "failed", problem.kind)
            raise
        except AccessError as error:
            if audit.identity and audit.identity.session:
                audit.identity.session.count(error, address_of(request))
            await audit.write("refused", str(error))
            raise
        except TamboError as error:
            await audit.write("failed", str(error))
            raise
        except Exception as error:
            await audit.write("failed", type(error).__name__)
            raise
        if isinstance(reply, Operation):
            audit.target = f"{reply.queue} {reply.id}"
        await audit.write("done", getattr(reply, "text", ""))
        return json_response(reply)

    return answers(answer)


def allowed(console: Console, request: Request, role: Role) -> Identity:
    """Return the caller. Raises `Problem` unless it may do what *role* may."""
    check_origin(request.headers, request.url.scheme)
    identity = console.identify(request)
    if identity is None:
        raise Problem(401, "login", "Log in with a token first.")
    if not identity.may(role):
        raise Problem(403, "role", f"The role {identity.role} may not do this; {role} may.")
    if role == "operator" and console.options.read_only:
        raise Problem(403, "read_only", "This console is read-only (--http-read-only).")
    if request.method == "POST":
        check_csrf(identity, request)
    return identity


def check_csrf(identity: Identity, request: Request) -> None:
    """Raise `Problem` unless the page that sent *request* has read the session's secret."""
    if identity.csrf and not is_same(request.headers.get(CSRF, ""), identity.csrf):
        raise Problem(
            403,
            "csrf",
            "The header X-Tambo-CSRF does not have the value of this session: "
            "get it from /api/v1/session.",
        )


def decode_query(kind: type[S], request: Request) -> S:
    """Return the parameters of path and query. Raises `Problem`."""
    found: dict[str, Any] = dict(request.path_params)
    lists = {each.name for each in msgspec.structs.fields(kind) if _is_list(each.type)}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if name in request.path_params or (len(values) > 1 and name not in lists):
            raise Problem(400, "parameter", f"The parameter {name} is given more than once.")
        found[name] = values if name in lists else values[0]
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(400, "parameter", f"The parameters are not valid: {error}.") from error


async def decode_body(kind: type[S], request: Request) -> S:
    """Return the body of a POST. Raises `Problem`."""
    if request.method != "POST":
        return msgspec.convert({}, kind)
    content = await _read(request)
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content and given != _JSON:
        raise Problem(415, "content_type", f"Send the body as {_JSON}.")
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, "body", f"The body is not valid: {error}.") from error


async def _read(request: Request) -> bytes:
    chunks, size = [], 0
    announced = request.headers.get("content-length", "0")
    if not announced.isdigit() or int(announced) > MAX_BODY_BYTES:
        raise _too_large()
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large() -> Problem:
    return Problem(413, "too_large", f"The body has more than {MAX_BODY_BYTES >> 20} MiB.")


def _is_list(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is list


def json_response(value: Any, status: int = 200) -> Response:
    """Return *value* as JSON, never cached."""
    headers = {"Cache-Control": "no-store"}
    return Response(msgspec.json.encode(value), status, headers, _JSON)


def problem_response(problem: Problem) -> Response:
    """Return *problem* as JSON."""
    response = json_response(problem.detail, problem.status)
    response.headers["content-type"] = "application/problem+json"
    if problem.retry_after_s is not None:
        response.headers["Retry-After"] = str(int(problem.retry_after_s) + 1)
    if problem.status == 401:  # noqa: PLR2004  (the status that demands it)
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


class _Audit:
    """What is written about one request, once it is known how it ended."""

    def __init__(self, console: Console, route: ApiRoute[Any, Any, Any], request: Request) -> None:
        self._console, self._route, self._request = console, route, request
        self.identity: Identity | None = None
        self.is_dry_run = False
        self.target = ""
        """If only what was done says it: the id of a selection does not name its queues."""

    async def write(self, outcome: Literal["done", "refused", "failed"], detail: str) -> None:
        if not self._route.verb or self.is_dry_run:
            return
        params = {**self._request.query_params, **self._request.path_params}
        target = self.target or " ".join(params[name] for name in _TARGET if name in params)
        await record(
            self._console, self._request, self.identity, (self._route.verb, target), outcome, detail
        )


async def record(
    console: Console,
    request: Request,
    identity: Identity | None,
    done: Iterable[str],
    outcome: Literal["done", "refused", "failed"],
    detail: str = "",
) -> None:
    """Audit *done*, a verb and its target. Without Redis it is only logged."""
    verb, target = done
    entry = AuditEntry(
        at_ms=time.time_ns() // 1_000_000,
        user=identity.user if identity else "unknown",
        role=identity.role if identity else "none",
        address=address_of(request),
        verb=verb,
        target=target,
        outcome=outcome,
        detail=detail,
    )
    try:
        audit = console.parts.audit
    except Problem:
        write_log(entry)
    else:
        await audit.record(entry)
