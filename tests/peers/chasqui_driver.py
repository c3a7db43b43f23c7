"""A ChasquiMQ queue, its worker and its listener, driven by JSON lines.

``python chasqui_driver.py <module> <name>``: the module is ``chasquimq`` or ``tambomq.chasqui``, so
one program drives the engine and us. ``{"op": …, "given": …}`` on stdin, ``{"ok": …}`` or
``{"error": …}`` on stdout; values travel as Python literals, which have bytes and keys of any kind.

The handler does what a job's data says, and tells of each run in the Redis list ``ran:<queue>``.
The end of stdin ends the process.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import os
import sys
from contextlib import suppress
from typing import Any

import redis.asyncio

_STOP_WITHIN_S = 60.0
_SERVER_LOOKS_S = 0.1


class Driver:
    """One queue at a time, and what it can be asked."""

    def __init__(self, module: str, name: str) -> None:
        self._lib, self._party = importlib.import_module(module), name
        self._url = self._name = ""
        self._queue: Any = None
        self._worker: Any = None
        self._running: asyncio.Future[None] | None = None
        self._block_s = 0.0
        self._listener: Any = None
        self._listening: asyncio.Future[None] | None = None
        self._heard: list[tuple[Any, ...]] = []
        self._db: redis.asyncio.Redis | None = None

    async def open(self, url: str, queue: str, **options: Any) -> None:
        """Open *queue*; close what was open."""
        await self.close()
        self._url, self._name = url, queue
        self._queue = self._lib.Queue(queue, redis_url=url, **options)
        self._db = redis.asyncio.Redis.from_url(url)

    async def close(self) -> None:
        """End everything that is open."""
        await self.stop()
        if self._listener is not None and self._listening is not None:
            await self._listener.close()
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listener = self._listening = None
        if self._queue is not None:
            await self._queue.close()
            self._queue = None
        if self._db is not None:
            await self._db.aclose()

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Return what a method of the queue returns, a job as its id."""
        return _literal(await getattr(self._queue, method)(*args, **self._made(options)))

    async def result_of(self, name: str, data: Any, timeout_s: float, **options: Any) -> Any:
        """Add a job and return what it comes to."""
        job = await self._queue.add(name, data, **options)
        return await job.wait_for_result(timeout=timeout_s)

    async def raw_add(self, payload: bytes, opts: dict[str, Any]) -> str:
        """Add a job by the engine's lower interface, which only the engine has."""
        producer = self._lib.Producer(self._url, self._name)
        id: str = await producer.add_with_options(payload, opts)
        await producer.shutdown()
        return id

    async def work(self, **options: Any) -> None:
        """Run a worker until `stop`."""
        await self.stop()
        self._block_s = options.get("read_block_ms", 5_000) / 1000
        self._worker = self._lib.Worker(self._name, self._handle, redis_url=self._url, **options)
        self._running = asyncio.ensure_future(self._worker.run())

    async def stop(self) -> None:
        """Close the worker, and wait until it has ended."""
        if self._worker is not None and self._running is not None:
            await self._worker.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._running, _STOP_WITHIN_S)
            self._worker = self._running = None
            if self._lib.__name__ == "chasquimq":
                # It abandons its last read, and what that still gets is lost for a while. A
                # server looks every 100 ms which reads have waited long enough.
                await asyncio.sleep(self._block_s + 2 * _SERVER_LOOKS_S)

    async def listen(self, **options: Any) -> None:
        """Subscribe to events."""
        self._heard = []
        self._listener = self._lib.QueueEvents(self._name, redis_url=self._url, **options)
        self._listening = asyncio.ensure_future(self._hear())

    async def heard(self) -> list[tuple[Any, ...]]:
        """Return the events so far, each as name, job's id, job's name and the other fields."""
        return self._heard

    async def pid(self) -> int:
        """Return whom to kill."""
        return os.getpid()

    async def _hear(self) -> None:
        async for event in self._listener:
            self._heard.append((event.name, event.job_id, event.job_name, dict(event.fields)))

    async def _handle(self, job: Any) -> Any:
        assert self._db is not None
        row = (self._party, job.id, job.name, job.data, job.attempts_made, job.created_at_ms)
        await self._db.rpush(f"ran:{self._name}", repr(row))
        options = job.data if isinstance(job.data, dict) else {}
        await asyncio.sleep(options.get("for_s", 0))
        if options.get("hold"):
            await self._db.blpop([f"let-go:{self._name}"], 0)
        if job.attempts_made < options.get("fail", 0):
            raise ValueError("fails as told")
        if options.get("poison"):
            raise self._lib.UnrecoverableError("poisoned as told")
        return options.get("return")

    def _made(self, options: dict[str, Any]) -> dict[str, Any]:
        if isinstance(pattern := options.get("repeat"), dict):
            options["repeat"] = self._lib.RepeatPattern(**pattern)
        return options


def _literal(value: Any) -> Any:
    if isinstance(value, list):
        return [_literal(item) for item in value]
    if hasattr(value, "created_at_ms"):
        return value.id
    if hasattr(value, "next_fire_ms"):
        missed = value.missed_fires
        return {
            "key": value.key,
            "job_name": value.job_name,
            "pattern": value.pattern.to_dict(),
            "limit": value.limit,
            "start_after_ms": value.start_after_ms,
            "end_before_ms": value.end_before_ms,
            "missed_fires": missed and missed.to_dict(),
        }
    return dict(value) if hasattr(value, "keys") else value


async def _answer(driver: Driver, op: str, given: str) -> dict[str, Any]:
    args, options = ast.literal_eval(given)
    try:
        return {"ok": repr(await getattr(driver, op)(*args, **options))}
    except Exception as error:  # noqa: BLE001  (whatever a client refuses with)
        return {"error": type(error).__name__, "text": str(error)}


async def _main() -> None:
    driver = Driver(sys.argv[1], sys.argv[2])
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await _answer(driver, **json.loads(line))), flush=True)  # noqa: T201  (the protocol)
    await driver.close()
    # An interpreter that shuts down with the engine in it may abort.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main())
