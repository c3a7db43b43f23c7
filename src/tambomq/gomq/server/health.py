"""gRPC's health service: SERVING while Redis answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2

from tambomq.errors import StoreError
from tambomq.gomq.server.methods import SERVICE

# Reply before the client times out: probes usually wait a second or more.
_PING_TIMEOUT_S: Final = 0.9
# As often as load balancers check.
_EVERY_S: Final = 5.0
_SERVICES: Final = frozenset(("", SERVICE))

_Reply = health_pb2.HealthCheckResponse


class HealthServicer:
    """Answers ``Check`` and ``Watch``; *ping* raises `StoreError` when Redis does not answer."""

    def __init__(self, ping: Callable[[], Awaitable[object]]) -> None:
        self._ping = ping

    async def check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Return the current status."""
        if request.service not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}")
        return await self._status()

    async def watch(
        self, request: Any, _: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the current status, and then each change."""
        if request.service not in _SERVICES:
            # The specification demands that the call stays open: the service might be added.
            yield _Reply(status=_Reply.SERVICE_UNKNOWN)
            await asyncio.Event().wait()
        last = None
        while True:
            if (status := await self._status()) != last:
                yield (last := status)
            await asyncio.sleep(_EVERY_S)

    async def _status(self) -> Any:
        try:
            async with asyncio.timeout(_PING_TIMEOUT_S):
                await self._ping()
        except (StoreError, TimeoutError):
            return _Reply(status=_Reply.NOT_SERVING)
        return _Reply(status=_Reply.SERVING)
