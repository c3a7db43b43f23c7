"""GOMQ's calls as an ASGI application: gRPC on a server that speaks HTTP/2 and knows trailers.

Errors become what `status_of` says, as at every door. A call that fails in a way nobody foresaw is
logged here, once; what callers did wrong never is.
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

from tambomq.errors import BrokerRefused
from tambomq.gomq import grpc_frames as frames
from tambomq.gomq.asgi_call import Call, Gone, Receive, Send
from tambomq.gomq.caller import Caller, Gate
from tambomq.gomq.health import Health
from tambomq.gomq.methods import METHODS, SERVICE
from tambomq.gomq.service import Service
from tambomq.gomq.status import Code, status_of

Scope: TypeAlias = MutableMapping[str, Any]

HEALTH: Final[str] = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
REFLECTION: Final[str] = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"].full_name

# How long a client that went away without waiting for its answer may keep us busy.
_LISTEN_EVERY_S: Final = 1.0
# What was told to end needs a moment to do so.
_END_WITHIN_S: Final = 1.0
_GRPC: Final = re.compile(r"application/grpc(\+proto)?\s*(;.*)?", re.ASCII)
# Its types know the blocking half alone.
_reflecting: Final[Any] = reflection.aio  # type: ignore[attr-defined]
_STOPPING: Final = "the server is stopping"

_log: Final = logging.getLogger(__name__)


class GomqApp:
    """What an ASGI server calls. Serves until it is closed; the service is its owner's to start.

    Somebody must run `listen`, or clients that go away keep what they watch.
    """

    def __init__(self, service: Service, gate: Gate, *, max_message_bytes: int) -> None:
        self._gate, self._max_bytes = gate, max_message_bytes
        self._routes = _routes(service)
        self._calls = set[Call]()
        self._is_closed = False
        self._idle = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        words = {name.decode("latin-1"): word.decode("latin-1") for name, word in scope["headers"]}
        if wrong := _wrong_http(scope, words):
            await _refuse_http(wrong, send)
            return
        call = Call(receive, send, self._max_bytes)
        self._calls.add(call)
        try:
            await self._answer(call, scope, words)
        except asyncio.CancelledError:
            if not call.was_ended() or call.verdict is None:
                raise
            await call.finish(*call.verdict)
        except Gone:
            pass
        except Exception as error:  # noqa: BLE001  (the status says which, the log what)
            await call.finish(*_status(scope["path"], error))
        finally:
            call.close()
            self._calls.discard(call)
            if self._is_closed and not self._calls:
                self._idle.set()

    async def listen(self) -> None:
        """End the calls of clients that went away; for ever."""
        while True:
            await asyncio.sleep(_LISTEN_EVERY_S)
            for call in tuple(self._calls):
                call.listen()

    async def close(self, grace_s: float) -> None:
        """Take no more calls, let those under way finish for *grace_s* seconds, end the others.

        Those that last are ended at once.
        """
        self._is_closed = True
        if not self._calls:
            return
        self._end(lambda call: call.lasts)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace_s)
        self._end(lambda _: True)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), _END_WITHIN_S)

    def _end(self, which: Callable[[Call], bool]) -> None:
        for call in filter(which, tuple(self._calls)):
            call.end(Code.UNAVAILABLE, _STOPPING)

    async def _answer(self, call: Call, scope: Scope, words: dict[str, str]) -> None:
        if self._is_closed:
            raise BrokerRefused("call", "UNAVAILABLE", _STOPPING)
        route = self._routes.get(path := _path(scope))
        if route is None:
            raise BrokerRefused("call", "UNIMPLEMENTED", f"there is no {path}")
        if "grpc-timeout" in words:
            call.end_in(frames.timeout_s(words["grpc-timeout"]))
        frames.check_encoding(encoding := words.get("grpc-encoding", "identity"))
        caller = self._gate.admit(_address(scope), words) if route.is_gated else Caller("")
        request: Any
        if route.takes_many:
            request = route.parse_all(call.requests(encoding))
        else:
            request = route.parse(await call.request(encoding))
        if not route.streams:
            reply: Message = await route.answer(request, caller)
            await call.answer(reply.SerializeToString(), caller.reply)
            return
        call.lasts = True
        async with aclosing(route.answer(request, caller)) as replies:
            async for reply in replies:
                await call.write(reply.SerializeToString(), caller.reply)
        await call.finish(Code.OK, "")


@dataclass(frozen=True, slots=True)
class _Route:
    """One call: how its request is read, and who answers it."""

    request: type[Message]
    answer: Callable[[Any, Caller], Any]
    streams: bool
    is_gated: bool = True
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
            text = f"the request is no {name}"
            raise BrokerRefused("call", "INVALID_ARGUMENT", text) from None


def _routes(service: Service) -> dict[str, _Route]:
    routes = {
        path: _Route(method.request, getattr(service, method.handler), method.streams)
        for path, method in METHODS.items()
    }
    health, context, ask = Health(service.ping), _Context(), health_pb2.HealthCheckRequest
    reflected = _reflecting.ReflectionServicer((SERVICE, HEALTH, REFLECTION))

    async def check(request: Any, _: Caller) -> Any:
        return await health.check(request, context)  # type: ignore[arg-type]

    def watch(request: Any, _: Caller) -> AsyncIterator[Any]:
        return health.watch(request, context)  # type: ignore[arg-type]

    def reflect(requests: Any, _: Caller) -> Any:
        return reflected.ServerReflectionInfo(requests, context)

    asked = reflection_pb2.ServerReflectionRequest
    path = f"/{REFLECTION}/ServerReflectionInfo"
    routes[path] = _Route(asked, reflect, streams=True, takes_many=True)
    routes[f"/{HEALTH}/Check"] = _Route(ask, check, streams=False, is_gated=False)
    routes[f"/{HEALTH}/Watch"] = _Route(ask, watch, streams=True, is_gated=False)
    return routes


class _Aborted(Exception):
    """A status that the health service answers with."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(details)
        self.code, self.details = code, details


class _Context:
    """As much of gRPC's context as the health service uses."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise _Aborted(code.value[0], details)


def _path(scope: Scope) -> str:
    """Return the path as it came: who filters calls by it has seen nothing else."""
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


def _address(scope: Scope) -> str:
    host, port = scope["client"]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _wrong_http(scope: Scope, words: dict[str, str]) -> int:
    """Return the HTTP status for what is no gRPC at all, or 0."""
    kind = words.get("content-type", "")
    if kind != "application/grpc" and not _GRPC.fullmatch(kind):
        return 415
    if scope["method"] != "POST":
        return 405
    # Trailers, which carry the status, would be lost.
    return 505 if scope["http_version"].startswith("1") else 0


async def _refuse_http(status: int, send: Send) -> None:
    headers = [(b"content-type", b"text/plain")]
    with suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"gRPC over HTTP/2 is spoken here\n"})
