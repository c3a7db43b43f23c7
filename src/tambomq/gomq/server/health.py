"""gRPC's health service: whether calls can be answered, asked of the store itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2

from tambomq.errors import StoreError
from tambomq.gomq.methods import SERVICE

# Who asks wants to hear "no" before giving up: probes usually wait a second or more.
_PATIENCE_S: Final = 0.9
# A watcher hears of a change within the time that balancers take between two checks.
_EVERY_S: Final = 5.0
_SERVICES: Final = frozenset(("", SERVICE))

_Reply = health_pb2.HealthCheckResponse


class Health:
    """Answers ``Check`` and ``Watch``; *ping* raises `StoreError` when the store is away."""

    def __init__(self, ping: Callable[[], Awaitable[object]]) -> None:
        self._ping = ping

    async def check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Return how it is now."""
        if request.service not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}")
        return await self._status()

    async def watch(
        self, request: Any, _: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield how it is now, and then each change."""
        if request.service not in _SERVICES:
            # The call goes on, as its specification demands: the service might come.
            yield _Reply(status=_Reply.SERVICE_UNKNOWN)
            await asyncio.Event().wait()
        told = None
        while True:
            if (status := await self._status()) != told:
                yield (told := status)
            await asyncio.sleep(_EVERY_S)

    async def _status(self) -> Any:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._ping()
        except (StoreError, TimeoutError):
            return _Reply(status=_Reply.NOT_SERVING)
        return _Reply(status=_Reply.SERVING)
