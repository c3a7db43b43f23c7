"""GOMQ's service without a transport: from one publisher to a hundred consumers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import uvloop

from benchmarks.players.gomq_frames import PREFIX
from benchmarks.players.gomq_leave import leave
from benchmarks.players.gomq_one_by_one import OneByOneService
from benchmarks.players.talk import play
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.service import Service
from tambomq.store.aio import AsyncStore

_PUBLISHERS = 10
_KEY = f"{PREFIX}fan"


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """What is measured here."""
    python = ".".join(map(str, sys.version_info[:3]))
    loop = f"uvloop {version('uvloop')}"
    return {"version": f"TamboMQ {version('tambomq')} (Python {python}, {loop})"}


def deliver(order: Mapping[str, Any]) -> Mapping[str, Any]:
    """Publish to one key until all its consumers have observed everything."""
    return uvloop.run(_deliver(order))


async def _deliver(order: Mapping[str, Any]) -> Mapping[str, Any]:
    async with _service(order["url"], one_by_one=order["one_by_one"]) as service:
        consumers = [f"{PREFIX}{n}" for n in range(order["consumers"])]
        for name in consumers:
            subscription = pb.Subscription(key=_KEY, consumerID=name)
            await service.subscribe(subscription, Caller(name))
        await _round(service, order, consumers, order["warm"])
        began, cpu_began = time.perf_counter(), time.process_time()
        await _round(service, order, consumers, order["count"])
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
        copies = order["count"] * len(consumers)
        return {"rate": copies / took_s, "busy": 100 * cpu_s / took_s}


async def _round(
    service: Service, order: Mapping[str, Any], consumers: list[str], count: int
) -> None:
    """Publish, wait until every dedicated queue is filled, and observe them all.

    Who would look while they are being filled would slow down one that fills them slowly.
    """
    record = pb.PublishRecord(key=_KEY, payload=order["body"].encode())
    filled = service.stats.copies + count * len(consumers)

    async def publish() -> None:
        for _ in range(count // _PUBLISHERS):
            await service.publish(record, Caller("publisher"))

    async def observe(name: str) -> None:
        caller, request = Caller(name), pb.Identification(consumerID=name)
        seen = 0
        while found := len((await service.observe(request, caller)).records):
            seen += found
        if seen != count:
            raise RuntimeError(f"{name} observed {seen} of {count} messages")

    await asyncio.gather(*(publish() for _ in range(_PUBLISHERS)))
    while service.stats.copies < filled:  # noqa: ASYNC110  (nobody tells)
        await asyncio.sleep(0.0005)
    await asyncio.gather(*map(observe, consumers))


@asynccontextmanager
async def _service(url: str, *, one_by_one: bool) -> AsyncIterator[Service]:
    store, waiting = AsyncStore(url), AsyncStore(url)
    service = OneByOneService(store, waiting) if one_by_one else Service(store)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()
        await store.close()
        await waiting.close()


if __name__ == "__main__":
    play({"about": about, "deliver": deliver, "leave": leave})
