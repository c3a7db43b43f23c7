"""GOMQ's gRPC methods as an ASGI application, for a server with HTTP/2 and trailers (Envoy).

Errors become statuses by `status_of`, as in `grpc_handlers`. An unexpected error is logged here,
once; errors of the caller are not logged.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from tambomq.access.identities import of_envoy
from tambomq.errors import BrokerRefused
from tambomq.gomq.envoy import grpc_framing
from tambomq.gomq.envoy.app_call import AsgiCall, ClientDisconnected, Receive, Send
from tambomq.gomq.server.auth import Authenticator, Caller
from tambomq.gomq.server.durability import trailers
from tambomq.gomq.server.guarded_service import GuardedService
from tambomq.gomq.server.health import HealthServicer
from tambomq.gomq.server.methods import METHODS, SERVICE
from tambomq.gomq.server.service import Service
from tambomq.gomq.server.status import Code, status_of
from tambomq.text import format_address

Scope: TypeAlias = MutableMapping[str, Any]

HEALTH: Final[str] = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
REFLECTION: Final[str] = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"].full_name

CERTIFICATE: Final = "x-forwarded-client-cert"
"""Header in which Envoy names the verified certificate of the client."""
# A client that disconnects without waiting for the reply is noticed after this time.
_POLL_EVERY_S: Final = 1.0
# Calls that were cancelled need a moment to finish.
_END_WITHIN_S: Final = 1.0
_GRPC: Final = re.compile(r"application/grpc(\+proto)?\s*(;.*)?", re.ASCII)
# Its type stubs lack the asyncio part.
_reflecting: Final[Any] = reflection.aio  # type: ignore[attr-defined]
_STOPPING: Final = "the server is stopping"

_log: Final = logging.getLogger(__name__)


class GomqApp:
    """The ASGI application. It neither starts nor stops *service*.

    Run `poll_disconnects` beside it, or calls of disconnected clients go on for ever.
    """

    def __init__(
        self,
        service: Service | GuardedService,
        authenticator: Authenticator,
        *,
        max_message_bytes: int,
    ) -> None:
        self._authenticator, self._max_bytes = authenticator, max_message_bytes
        self._routes = _routes(service)
        self._calls = set[AsgiCall]()
        self._is_closed = False
        self._idle = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        if http_error := _http_error(scope, headers):
            await _refuse_http(http_error, send)
            return
        call = AsgiCall(receive, send, self._max_bytes)
        self._calls.add(call)
        try:
            await self._answer(call, scope, headers)
        except asyncio.CancelledError:
            if not call.was_ended() or call.end_status is None:
                raise
            await call.finish(*call.end_status)
        except ClientDisconnected:
            pass
        except Exception as error:  # noqa: BLE001  (the status says which, the log what)
            await call.finish(*_status(scope["path"], error), trailers(error))
        finally:
            call.close()
            self._calls.discard(call)
            if self._is_closed and not self._calls:
                self._idle.set()

    async def poll_disconnects(self) -> None:
        """End the calls of clients that have disconnected, for ever."""
        while True:
            await asyncio.sleep(_POLL_EVERY_S)
            for call in tuple(self._calls):
                call.poll_disconnect()

    async def close(self, grace_s: float) -> None:
        """Refuse new calls, let others finish for *grace_s* seconds, then end them.

        Streams are ended at once.
        """
        self._is_closed = True
        if not self._calls:
            return
        self._end(lambda call: call.is_long_lived)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace_s)
        self._end(lambda _: True)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), _END_WITHIN_S)

    def _end(self, which: Callable[[AsgiCall], bool]) -> None:
        for call in filter(which, tuple(self._calls)):
            call.end(Code.UNAVAILABLE, _STOPPING)

    async def _answer(self, call: AsgiCall, scope: Scope, headers: dict[str, str]) -> None:
        if self._is_closed:
            raise BrokerRefused("call", "UNAVAILABLE", _STOPPING)
        route = self._routes.get(path := _path(scope))
        if route is None:
            raise BrokerRefused("call", "UNIMPLEMENTED", f"there is no method {path}")
        if "grpc-timeout" in headers:
            call.end_in(grpc_framing.timeout_s(headers["grpc-timeout"]))
        grpc_framing.check_encoding(encoding := headers.get("grpc-encoding", "identity"))
        caller = Caller("")
        if route.is_authenticated:
            # Envoy removes this header from requests, and sets it for verified certificates.
            caller = self._authenticator.admit(
                format_address(*scope["client"]),
                headers,
                lambda: of_envoy(headers.get(CERTIFICATE, "")),
            )
        request: Any
        if route.takes_many:
            request = route.parse_all(call.requests(encoding))
        else:
            request = route.parse(await call.request(encoding))
        if not route.streams:
            reply: Message = await route.answer(request, caller)
            await call.answer(reply.SerializeToString(), caller.reply)
            return
        call.is_long_lived = True
        async with aclosing(route.answer(request, caller)) as replies:
            async for reply in replies:
                await call.write(reply.SerializeToString(), caller.reply)
        await call.finish(Code.OK, "")


@dataclass(frozen=True, slots=True)
class _Route:
    """One gRPC method: the type of its request, and the function that answers it."""

    request: type[Message]
    answer: Callable[[Any, Caller], Any]
    streams: bool
    is_authenticated: bool = True
    takes_many: bool = False
    """Whether the request is a stream of messages instead of one."""

    async def parse_all(self, messages: AsyncIterator[bytes]) -> AsyncIterator[Message]:
        async for message in messages:
            yield self.parse(message)

    def parse(self, data: bytes) -> Message:
        try:
            return self.request.FromString(data)
        except DecodeError:
            name = self.request.DESCRIPTOR.name
            text = f"the request is not a valid {name}"
            raise BrokerRefused("call", "INVALID_ARGUMENT", text) from None


def _routes(service: Service | GuardedService) -> dict[str, _Route]:
    routes = {
        path: _Route(method.request, getattr(service, method.handler), method.streams)
        for path, method in METHODS.items()
    }
    health, context = HealthServicer(service.ping), _Context()
    reflected = _reflecting.ReflectionServicer((SERVICE, HEALTH, REFLECTION))

    async def check(request: Any, _: Caller) -> Any:
        return await health.check(request, context)  # type: ignore[arg-type]

    def watch(request: Any, _: Caller) -> AsyncIterator[Any]:
        return health.watch(request, context)  # type: ignore[arg-type]

    def reflect(requests: Any, _: Caller) -> Any:
        return reflected.ServerReflectionInfo(requests, context)

    request: type[Message] = reflection_pb2.ServerReflectionRequest
    path = f"/{REFLECTION}/ServerReflectionInfo"
    routes[path] = _Route(request, reflect, streams=True, takes_many=True)
    request = health_pb2.HealthCheckRequest
    routes[f"/{HEALTH}/Check"] = _Route(request, check, streams=False, is_authenticated=False)
    routes[f"/{HEALTH}/Watch"] = _Route(request, watch, streams=True, is_authenticated=False)
    return routes


class _Aborted(Exception):
    """The health service ended a call with this status."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(details)
        self.code, self.details = code, details


class _Context:
    """The part of gRPC's context that the health service uses."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise _Aborted(code.value[0], details)


def _path(scope: Scope) -> str:
    """Return the path as it was sent, unnormalised: proxies that filter by path see the same."""
    raw, query = scope.get("raw_path"), scope.get("query_string")
    path = raw.decode("latin-1") if raw else str(scope["path"])
    return f"{path}?{query.decode('latin-1')}" if query else path


def _status(path: str, error: Exception) -> tuple[int, str]:
    if isinstance(error, _Aborted):
        return error.code, error.details
    code, text = status_of(error)
    if code is Code.INTERNAL and not isinstance(error, BrokerRefused):
        _log.error("%s failed", path, exc_info=error)
    return code, text


def _http_error(scope: Scope, headers: dict[str, str]) -> int:
    """Return the HTTP status for a request that is not gRPC, or 0."""
    kind = headers.get("content-type", "")
    if kind != "application/grpc" and not _GRPC.fullmatch(kind):
        return 415
    if scope["method"] != "POST":
        return 405
    # HTTP/1 would drop the trailers, which carry the status.
    return 505 if scope["http_version"].startswith("1") else 0


async def _refuse_http(status: int, send: Send) -> None:
    headers = [(b"content-type", b"text/plain")]
    with suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"this server speaks gRPC over HTTP/2\n"})
