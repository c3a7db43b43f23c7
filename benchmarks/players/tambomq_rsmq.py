"""Our RSMQ: the blocking client, the asyncio client on uvloop, and the worker."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.players.talk import play, rate
from tambomq.rsmq import AsyncRsmq, Message, Rsmq, RsmqWorker

_WORKER_CONCURRENCY = 16
_LONGEST_S = 300.0


@cache
def client(url: str) -> Rsmq:
    """One blocking client for all rounds."""
    return Rsmq(url)


def run(work: Coroutine[Any, Any, dict[str, float]]) -> dict[str, float]:
    """Run *work* on uvloop, or on asyncio's loop if it is not installed."""
    try:
        import uvloop  # noqa: PLC0415  (not installed everywhere)
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions measured."""
    try:
        loop = f"uvloop {version('uvloop')}"
    except PackageNotFoundError:
        loop = "asyncio"
    python = ".".join(map(str, sys.version_info[:3]))
    return {"version": f"TamboMQ {version('tambomq')} (Python {python}, {loop})"}


# ── one client ───────────────────────────────────────────────────────────────


def send(order: Mapping[str, Any]) -> dict[str, float]:
    """Send messages one after the other."""
    rsmq, queue, body = client(order["url"]), order["queue"], order["body"]
    return rate(lambda: rsmq.send_message(queue, body), order["count"], order["warm"])


def receive(order: Mapping[str, Any]) -> dict[str, float]:
    """Receive a message and delete it, one after the other."""
    rsmq, queue = client(order["url"]), order["queue"]

    def take() -> None:
        message = rsmq.receive_message(queue)
        if message is None or not rsmq.delete_message(queue, message.id):
            raise RuntimeError("the message could not be deleted")

    return rate(take, order["count"], order["warm"])


def send_bulk(order: Mapping[str, Any]) -> dict[str, float]:
    """Send messages a thousand at a time."""
    rsmq, queue, bodies = client(order["url"]), order["queue"], [order["body"]] * 1000
    batches = order["count"] // 1000
    batch_rate = rate(lambda: rsmq.send_messages(queue, bodies), batches, order["warm"] // 1000)
    return {"rate": batch_rate["rate"] * 1000}


# ── several in flight ────────────────────────────────────────────────────────


async def _several(act: Callable[[], Awaitable[object]], count: int, flights: int) -> None:
    left = iter(range(count))

    async def fly() -> None:
        for _ in left:
            await act()

    await asyncio.gather(*(fly() for _ in range(flights)))


async def _rate(
    order: Mapping[str, Any], act: Callable[[AsyncRsmq], Awaitable[object]]
) -> dict[str, float]:
    count, flights = order["count"], order["flights"]
    async with AsyncRsmq(order["url"]) as rsmq:
        await _several(lambda: act(rsmq), order["warm"], flights)
        began = time.perf_counter()
        await _several(lambda: act(rsmq), count, flights)
        return {"rate": count / (time.perf_counter() - began)}


def send_async(order: Mapping[str, Any]) -> dict[str, float]:
    """Send messages, several at a time."""
    queue, body = order["queue"], order["body"]
    return run(_rate(order, lambda rsmq: rsmq.send_message(queue, body)))


def receive_async(order: Mapping[str, Any]) -> dict[str, float]:
    """Receive messages and delete each, several at a time."""
    queue = order["queue"]

    async def take(rsmq: AsyncRsmq) -> None:
        message = await rsmq.receive_message(queue)
        if message is None or not await rsmq.delete_message(queue, message.id):
            raise RuntimeError("the message could not be deleted")

    return run(_rate(order, take))


# ── waiting ──────────────────────────────────────────────────────────────────


def wake(order: Mapping[str, Any]) -> dict[str, float]:
    """Measure the time from a realtime send until a waiting receiver has the message."""
    return run(_wake(order["url"], order["queue"], order["body"], order["count"]))


async def _wake(url: str, queue: str, body: str, count: int) -> dict[str, float]:
    took_ms = []
    async with AsyncRsmq(url) as receiver, AsyncRsmq(url, realtime=True) as sender:
        for _ in range(count):
            waiting = asyncio.ensure_future(receiver.receive_message(queue, wait=10))
            # Long enough that the receiver waits, and random so that nothing synchronizes with it.
            await asyncio.sleep(random.uniform(0.003, 0.008))
            began = time.perf_counter()
            await sender.send_message(queue, body)
            message = await waiting
            took_ms.append((time.perf_counter() - began) * 1000)
            if message is None:
                raise RuntimeError("the receiver timed out")
            await receiver.delete_message(queue, message.id)
    took_ms.sort()
    return {"p50": took_ms[count // 2], "p99": took_ms[min(count - 1, count * 99 // 100)]}


# ── a worker's memory ────────────────────────────────────────────────────────


def worker_memory(order: Mapping[str, Any]) -> dict[str, float]:
    """Measure how a worker's memory grows while it handles the messages of a queue."""
    return run(_worker_memory(order["url"], order["queue"], order["count"]))


async def _worker_memory(url: str, queue: str, count: int) -> dict[str, float]:
    warm, handled, before_mb = count // 10, 0, 0.0

    async def handle(_: Message) -> None:
        nonlocal handled, before_mb
        handled += 1
        if handled == warm:
            before_mb = _resident_mb()
        elif handled == count:
            worker.stop()

    worker = RsmqWorker(queue, handle, url=url, concurrency=_WORKER_CONCURRENCY)
    began = time.perf_counter()
    async with asyncio.timeout(_LONGEST_S):
        await worker.run()
    took_s = time.perf_counter() - began
    return {"growth": _resident_mb() - before_mb, "rate": handled / took_s}


def _resident_mb() -> float:
    command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    printed = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(printed.stdout) / 1024


if __name__ == "__main__":
    play(
        {
            "about": about,
            "send": send,
            "receive": receive,
            "send_bulk": send_bulk,
            "send_async": send_async,
            "receive_async": receive_async,
            "wake": wake,
            "worker_memory": worker_memory,
        }
    )
