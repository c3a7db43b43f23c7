"""The benchmark tasks of ChasquiMQ, for any package with its `Queue` and `Worker`.

The engine's own package and TamboMQ have the same names and options, so the same code measures
both, on uvloop. Environments without TamboMQ import this file too: it must not import TamboMQ,
and key names come with the order.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import uvloop
from redis.asyncio import Redis

from benchmarks.players.talk import Task

Order: TypeAlias = Mapping[str, Any]
Measurements: TypeAlias = dict[str, float]
Handler: TypeAlias = Callable[[Any], Awaitable[None]]

NAME = "job"
BULK = 1000
_LONGEST_S = 300.0
# Polling interval for the end of a task: far shorter than a task, and no load on the server.
_POLL_EVERY_S = 0.001
_SLOW_US, _SLOW_KEPT = 1000, 100_000


@dataclass(slots=True)
class Calls:
    """A handler that only counts its calls and keeps the last job."""

    expected: int
    made: int = 0
    last: Any = None
    all_made: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, job: Any) -> None:
        """Count *job*."""
        self.made += 1
        if self.made == self.expected:
            self.last = job
            self.all_made.set()

    def check(self, data: object) -> None:
        """Raise unless each job was handled once, and the last one was as it was added."""
        if self.made != self.expected:
            raise RuntimeError(f"{self.made} calls for {self.expected} jobs")
        if (self.last.name, self.last.data) != (NAME, data):
            raise RuntimeError(f"{self.last} is not what was added")


class Chasqui:
    """The tasks of one player, which brings its *queue* and *worker* classes."""

    def __init__(self, queue: Callable[..., Any], worker: Callable[..., Any]) -> None:
        self._queue, self._worker = queue, worker

    @property
    def tasks(self) -> dict[str, Task]:
        """Each task by its name."""
        return {
            name: _on_uvloop(getattr(self, name))
            for name in ("add", "add_bulk", "fill", "drain", "latency", "memory", "promote")
        }

    # ── adding ───────────────────────────────────────────────────────────────

    async def add(self, order: Order) -> Measurements:
        """Add jobs one by one, each awaited, with as many adders as *flights*."""
        data, flights = order["data"], order["flights"]
        return await self._rate(
            order, lambda queue, size: _several(lambda: queue.add(NAME, data), size, flights)
        )

    async def add_bulk(self, order: Order) -> Measurements:
        """Add jobs a thousand at a time."""
        return await self._rate(order, lambda queue, size: _bulk(queue, order["data"], size))

    async def _rate(self, order: Order, add: Callable[[Any, int], Awaitable[None]]) -> Measurements:
        count, warm = order["count"], order["warm"]
        async with self._open(order) as queue:
            await add(queue, warm)
            began = time.perf_counter()
            await add(queue, count)
            took_s = time.perf_counter() - began
        await _expect(order, "stream", count + warm)
        return {"rate": count / took_s}

    async def fill(self, order: Order) -> Measurements:
        """Add all jobs and leave them there."""
        async with self._open(order) as queue:
            await _bulk(queue, order["data"], order["count"])
        await _expect(order, "stream", order["count"])
        return {}

    # ── handling ─────────────────────────────────────────────────────────────

    async def drain(self, order: Order) -> Measurements:
        """Measure from a worker's start, without a group, until the stream is empty."""
        warming = {**order, **order["warming"], "count": order["warm"]}
        for part in (warming, order):
            await self.fill(part)
        calls = Calls(order["warm"])
        await self._drain(warming, calls, calls.handle)
        calls = Calls(order["count"])
        took_s = await self._drain(order, calls, calls.handle)
        return {"rate": order["count"] / took_s}

    async def _drain(self, order: Order, calls: Calls, handle: Handler) -> float:
        async with _connect(order) as server:
            before = await _events(server, order)
            began = time.perf_counter()
            async with self._working(order, handle):
                await calls.all_made.wait()
                await _until(lambda: server.xlen(order["stream"]))
                took_s = time.perf_counter() - began
            calls.check(order["data"])
            _check_events(await _events(server, order) - before, order)
        return took_s

    async def latency(self, order: Order) -> Measurements:
        """Measure from an add until its handler runs; producer and worker share a loop."""
        count, warm = order["count"], order["warm"]
        began_s, took_ms = [0.0] * (warm + count), []
        done = asyncio.Event()

        async def handle(job: Any) -> None:
            took_ms.append((time.perf_counter() - began_s[job.data["n"]]) * 1000)
            if len(took_ms) == warm + count:
                done.set()

        async with self._open(order) as queue, self._working(order, handle):
            start = time.perf_counter()
            for n in range(warm + count):
                due = start + (n + random.random() / 2) / order["per_s"]
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                began_s[n] = time.perf_counter()
                await queue.add(NAME, {**order["data"], "n": n})
            await done.wait()
        counted = sorted(took_ms[warm:])
        p50, p99 = counted[count // 2], counted[count * 99 // 100]
        return {"p50": p50, "p99": p99, "inverse": 1000 / p50}

    async def memory(self, order: Order) -> Measurements:
        """Measure the growth of a worker from a tenth of the jobs to the end, on a filled queue."""
        count = order["count"]
        calls, resident_mb = Calls(count), []

        async def handle(job: Any) -> None:
            await calls.handle(job)
            if calls.made in {count // 10, count}:
                resident_mb.append(_resident_mb())

        took_s = await self._drain(order, calls, handle)
        return {"growth": resident_mb[-1] - resident_mb[0], "rate": count / took_s}

    # ── delayed ──────────────────────────────────────────────────────────────

    async def promote(self, order: Order) -> Measurements:
        """Measure how long promoting jobs due in one millisecond takes, and the slowest script.

        No handler returns before all are promoted, so that nothing else is measured.
        """
        count, data = order["count"], order["data"]
        calls, gate = Calls(count), asyncio.Event()

        async def handle(job: Any) -> None:
            await gate.wait()
            await calls.handle(job)

        due_s = time.time() + order["due_in_s"]
        due = datetime.fromtimestamp(due_s, UTC)
        async with self._open(order) as queue:
            await _several(lambda: queue.add(NAME, data, delay_ms=due), count, order["flights"])
        await _expect(order, "delayed", count)
        await asyncio.sleep(max(0.0, due_s - time.time()))
        async with _connect(order) as server:
            await _watch_scripts(server)
            began = time.perf_counter()
            async with self._working(order, handle):
                await _until(lambda: server.zcard(order["delayed"]))
                took_s = time.perf_counter() - began
                slowest_ms = await _slowest_script_ms(server)
                gate.set()
                await calls.all_made.wait()
        calls.check(data)
        return {"took": took_s, "rate": count / took_s, "script": slowest_ms}

    # ── opening ──────────────────────────────────────────────────────────────

    def _open(self, order: Order) -> Any:
        # A cap far above the number of jobs: trimmed jobs would never be handled.
        return self._queue(
            order["queue"],
            redis_url=order["url"],
            max_stream_len=10_000_000,
        )

    @asynccontextmanager
    async def _working(self, order: Order, handle: Handler) -> AsyncIterator[None]:
        """Run a worker inside the block; raise at once if it ends early."""
        worker = self._worker(
            order["queue"],
            handle,
            redis_url=order["url"],
            concurrency=order["concurrency"],
            events_enabled=order["events_enabled"],
        )
        async with asyncio.timeout(_LONGEST_S), asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            try:
                yield
            finally:
                await worker.close()


def _on_uvloop(task: Callable[[Order], Coroutine[Any, Any, Measurements]]) -> Task:
    return lambda order: uvloop.run(task(order))


async def _several(act: Callable[[], Awaitable[object]], count: int, flights: int) -> None:
    left = iter(range(count))

    async def fly() -> None:
        for _ in left:
            await act()

    await asyncio.gather(*(fly() for _ in range(flights)))


async def _bulk(queue: Any, data: object, count: int) -> None:
    jobs = [{"name": NAME, "data": data} for _ in range(BULK)]
    for first in range(0, count, BULK):
        await queue.add_bulk(jobs[: count - first])


# ── checks on the server ─────────────────────────────────────────────────────


def _connect(order: Order) -> Redis:
    return Redis.from_url(order["url"])


async def _until(left: Callable[[], Awaitable[int]]) -> None:
    while await left():  # noqa: ASYNC110  (only the server knows)
        await asyncio.sleep(_POLL_EVERY_S)


async def _expect(order: Order, key: str, count: int) -> None:
    async with _connect(order) as server:
        size = server.zcard if key == "delayed" else server.xlen
        if (found := await size(order[key])) != count:
            raise RuntimeError(f"{found} jobs in {key}, not {count}")


async def _events(server: Redis, order: Order) -> int:
    there = await server.exists(order["events"])
    return (await server.xinfo_stream(order["events"]))["entries-added"] if there else 0


def _check_events(emitted: int, order: Order) -> None:
    """Raise unless each job has an active and a completed event, or events are off and none has."""
    if emitted < 2 * order["count"] if order["events_enabled"] else emitted:
        raise RuntimeError(f"{emitted} events for {order['count']} jobs")


async def _watch_scripts(server: Redis) -> None:
    """Log commands slower than a millisecond. It is the benchmark's own server."""
    await server.config_set("slowlog-log-slower-than", _SLOW_US)
    await server.config_set("slowlog-max-len", _SLOW_KEPT)
    await server.slowlog_reset()


async def _slowest_script_ms(server: Redis) -> float:
    """Return the duration of the slowest script since then; 1 if none was slow."""
    entries = await server.slowlog_get(_SLOW_KEPT)
    scripts = [each["duration"] for each in entries if each["command"].startswith(b"EVAL")]
    return max(scripts, default=_SLOW_US) / 1000


def _resident_mb() -> float:
    command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(listed.stdout) / 1024
