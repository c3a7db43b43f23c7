"""The grpc.aio handlers: authenticate, parse, call the service, and turn errors into statuses.

An unexpected error is logged here, once; errors of the caller are not logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, cast
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from tambomq.access.identities import of_grpc
from tambomq.errors import AccessError, BrokerRefused
from tambomq.gomq.server.auth import Authenticator, Caller
from tambomq.gomq.server.durability import trailers
from tambomq.gomq.server.guarded_service import GuardedService
from tambomq.gomq.server.health import HealthServicer
from tambomq.gomq.server.methods import METHODS, SERVICE, Method
from tambomq.gomq.server.service import Service
from tambomq.gomq.server.status import Code, status_of

T = TypeVar("T")
Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Stream: TypeAlias = Callable[[Any, Context], AsyncGenerator[Any, None]]

HEALTH: Final[str] = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
REFLECTION: Final[str] = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"].full_name

# Its type stubs lack the asyncio part.
_reflecting: Final[Any] = reflection.aio  # type: ignore[attr-defined]
_log: Final = logging.getLogger(__name__)
_STATUSES: Final = {status.value[0]: status for status in grpc.StatusCode}


class Handlers:
    """The handlers of a server: the service's own, health and reflection."""

    def __init__(self, service: Service | GuardedService, authenticator: Authenticator) -> None:
        self._service, self._authenticator, self._health = (
            service,
            authenticator,
            HealthServicer(service.ping),
        )
        self._reflection = _reflecting.ReflectionServicer((SERVICE, HEALTH, REFLECTION))
        self._waiting: set[asyncio.Task[Any]] = set()
        self._closed = False

    def all(self) -> tuple[grpc.GenericRpcHandler[Any, Any], ...]:
        """Return the handlers of all gRPC services."""
        return tuple(
            grpc.method_handlers_generic_handler(name, methods)
            for name, methods in (
                (SERVICE, {method.name: self._method(method) for method in METHODS.values()}),
                (HEALTH, self._health_methods()),
                (REFLECTION, self._reflection_methods()),
            )
        )

    def close(self) -> None:
        """End streams, and all calls from now on, with UNAVAILABLE."""
        self._closed = True
        for task in self._waiting:
            task.cancel()

    def _method(self, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        # Parse requests here: for invalid bytes gRPC would reply UNKNOWN and log a traceback.
        write = method.reply.SerializeToString
        if method.streams:
            return grpc.unary_stream_rpc_method_handler(
                self._stoppable(self._stream(method)), response_serializer=write
            )
        return grpc.unary_unary_rpc_method_handler(self._one(method), response_serializer=write)

    def _one(self, method: Method) -> Callable[[bytes, Context], Any]:
        answer = getattr(self._service, method.handler)

        async def call(data: bytes, context: Context) -> Message:
            try:
                caller = self._admit(context)
                reply: Message = await answer(_parse(method, data), caller)
            except Exception as error:  # noqa: BLE001  (the status says which, the log what)
                await _refuse(method, error, context)
            if caller.reply:
                await context.send_initial_metadata(tuple(caller.reply.items()))
            return reply

        return call

    def _stream(self, method: Method) -> Stream:
        answer = getattr(self._service, method.handler)

        async def call(data: bytes, context: Context) -> AsyncGenerator[Message, None]:
            try:
                caller = self._admit(context)
                async with aclosing(answer(_parse(method, data), caller)) as replies:
                    async for reply in replies:
                        yield reply
            except Exception as error:  # noqa: BLE001  (the status says which, the log what)
                await _refuse(method, error, context)

        return call

    def _stoppable(self, stream: Stream) -> Callable[[Any, Context], Any]:
        """Return *stream* as a handler that `close` can end."""

        async def call(request: Any, context: Context) -> None:
            async with aclosing(stream(request, context)) as replies:
                while True:
                    try:
                        reply = await self._interruptible(anext(replies))
                    except StopAsyncIteration:
                        return
                    except asyncio.CancelledError:
                        if not self._closed:
                            raise
                        break
                    await _write(context, reply)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping")

        return call

    async def _interruptible(self, reply: Awaitable[T]) -> T:
        # Only while waiting for a reply. While one is written, gRPC could send no status, and the
        # service would requeue messages that have arrived.
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        ending = asyncio.get_running_loop().call_soon(task.cancel) if self._closed else None
        self._waiting.add(task)
        try:
            return await reply
        finally:
            self._waiting.discard(task)
            if ending:
                ending.cancel()

    def _admit(self, context: Context) -> Caller:
        metadata = context.invocation_metadata() or ()
        texts = {name: value for name, value in metadata if isinstance(value, str)}
        address = address_of(context.peer())
        return self._authenticator.admit(address, texts, lambda: of_grpc(context.auth_context()))

    def _health_methods(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        parse = health_pb2.HealthCheckRequest.FromString
        write = health_pb2.HealthCheckResponse.SerializeToString
        return {
            "Check": grpc.unary_unary_rpc_method_handler(self._health.check, parse, write),
            "Watch": grpc.unary_stream_rpc_method_handler(
                self._stoppable(self._health.watch), parse, write
            ),
        }

    def _reflection_methods(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        async def reflect(requests: Any, context: Context) -> AsyncGenerator[Any, None]:
            try:
                self._admit(context)
            except (BrokerRefused, AccessError) as error:
                code, details = status_of(error)
                await context.abort(_STATUSES[code], details)
            async for reply in self._reflection.ServerReflectionInfo(requests, context):
                yield reply

        parse = reflection_pb2.ServerReflectionRequest.FromString
        write = reflection_pb2.ServerReflectionResponse.SerializeToString
        handler = grpc.stream_stream_rpc_method_handler(self._stoppable(reflect), parse, write)
        return {"ServerReflectionInfo": handler}


def address_of(peer: str) -> str:
    """Return ``[::1]:5467``, as used in keys, for gRPC's ``ipv6:%5B::1%5D:5467``."""
    return unquote(peer.partition(":")[2])


async def _write(context: Context, reply: Any) -> None:
    try:
        await context.write(reply)
    except grpc.aio.InternalError:
        # The client has disconnected; the cancellation has not arrived yet.
        raise asyncio.CancelledError from None


def _parse(method: Method, data: bytes) -> Message:
    try:
        return method.request.FromString(data)
    except DecodeError:
        text = f"the request is not a valid {method.request.DESCRIPTOR.name}"
        raise BrokerRefused(method.name, "INVALID_ARGUMENT", text) from None


async def _refuse(method: Method, error: Exception, context: Context) -> NoReturn:
    code, details = status_of(error)
    if code is Code.INTERNAL:
        _log.error("%s failed", method.name, exc_info=error)
    await context.abort(_STATUSES[code], details, trailers(error))
