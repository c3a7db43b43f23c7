"""Sends at a level of durability, on servers of its own: see `benchmarks.durability`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any, TypeAlias

import uvloop

from benchmarks.durability import BODY_BYTES
from benchmarks.players.talk import play
from tambomq import __version__
from tambomq.chasqui import Queue
from tambomq.extras import is_installed
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.envoy.server import EnvoyGomqServer
from tambomq.gomq.model import Options
from tambomq.gomq.server.grpc_server import GomqServer
from tambomq.rsmq import AsyncRsmq
from tambomq.store.call import Call
from tambomq.store.sync import Store
from tests.servers import Server, binaries, eventually

Send: TypeAlias = Callable[[], Awaitable[object]]

_BODY = "x" * BODY_BYTES
_ends = ExitStack()
_running: dict[str, str] = {}
"""The URLs of the servers."""


def about(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return the version, and the transport of GOMQ."""
    return {"version": f"TamboMQ {__version__}, GOMQ by {'Envoy' if _has_envoy() else 'grpc.aio'}"}


def rsmq(order: Mapping[str, Any]) -> dict[str, float]:
    """Send to a queue, by one client."""
    return uvloop.run(_measured(_rsmq, order))


def chasqui(order: Mapping[str, Any]) -> dict[str, float]:
    """Add jobs, by one queue."""
    return uvloop.run(_measured(_chasqui, order))


def gomq(order: Mapping[str, Any]) -> dict[str, float]:
    """Publish, by one client of a server."""
    return uvloop.run(_measured(_gomq, order))


async def _measured(opened: Any, order: Mapping[str, Any]) -> dict[str, float]:
    store = Store(_url())
    store.run(Call("FLUSHALL", (), (), bool))
    # The replica has that, too, or the first sends would wait for it.
    store.run(Call("WAIT", (), (1, 10_000), int))
    store.close()
    async with opened(_url(), order["level"]) as send:
        await send()
        return {"rate": await _rate(send, order["in_flight"], order["seconds"])}


async def _rate(send: Send, in_flight: int, seconds: float) -> float:
    """Return how many sends end in a second; those that have begun in time are waited for."""
    began = time.perf_counter()
    done = 0

    async def go_on() -> None:
        nonlocal done
        while time.perf_counter() - began < seconds:
            await send()
            done += 1

    await asyncio.gather(*(go_on() for _ in range(in_flight)))
    return done / (time.perf_counter() - began)


@asynccontextmanager
async def _rsmq(url: str, level: str) -> AsyncIterator[Send]:
    async with AsyncRsmq(url, durable=level, durable_timeout_s=60) as client:
        await client.create_queue("q", maxsize=-1)
        yield lambda: client.send_message("q", _BODY)


@asynccontextmanager
async def _chasqui(url: str, level: str) -> AsyncIterator[Send]:
    async with Queue("q", redis_url=url, durable=level, durable_timeout_s=60) as queue:
        yield lambda: queue.add("job", _BODY)


@asynccontextmanager
async def _gomq(url: str, level: str) -> AsyncIterator[Send]:
    async with AsyncExitStack() as stack:
        kind = EnvoyGomqServer if _has_envoy() else GomqServer
        served = kind(url, port=0, options=Options(durable_timeout_s=60))
        await stack.enter_async_context(served)
        host, port = served.address
        client = AsyncGomqClient(f"{host}:{port}", timeout_s=120, durable=level)
        await stack.enter_async_context(client)
        yield lambda: client.publish("q", _BODY)


def _has_envoy() -> bool:
    return is_installed("envoy")


def _url() -> str:
    """Return the primary, which is started with its replica for the first turn."""
    if not _running:
        kept = ("--appendonly", "yes", "--appendfsync", "everysec")
        primary = _ends.enter_context(Server(binaries.valkey(), *kept))
        replica = _ends.enter_context(
            Server(binaries.valkey(), "--replicaof", f"127.0.0.1 {primary.port}")
        )
        eventually(lambda: _follows(primary.url), within_s=30)
        _running.update(primary=primary.url, replica=replica.url)
    return _running["primary"]


def _follows(url: str) -> bool:
    store = Store(url)
    try:
        return bool(store.run(Call("WAIT", (), (1, 100), int)))
    finally:
        store.close()


if __name__ == "__main__":
    with _ends:
        play({"about": about, "rsmq": rsmq, "chasqui": chasqui, "gomq": gomq})
