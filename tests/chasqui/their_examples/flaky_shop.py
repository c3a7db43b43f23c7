"""Orders that fail in several ways, their dead letters, and a second chance."""
# ruff: noqa: T201, ASYNC110  (what it prints is compared; it waits as short programs do)

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import Any

from chasquimq import BackoffSpec, Job, Queue, UnrecoverableError, Worker  # type: ignore[import-not-found]

URL = sys.argv[1]
runs: Counter[str] = Counter()
open_again = False


class OutOfStock(UnrecoverableError):  # type: ignore[misc]
    """Nothing to wait for."""


async def ship(job: Job) -> Any:
    runs[job.id] += 1
    if open_again:
        return None
    if job.name == "sold-out":
        raise OutOfStock(job.data["item"])
    if job.attempts_made < job.data["failures"]:
        raise RuntimeError("the belt is stuck")
    return None


async def settled(queue: Queue, dead: int, total: int) -> list[Any]:
    while len(found := await queue.peek_dlq()) != dead or sum(runs.values()) < total:
        await asyncio.sleep(0.02)
    return list(found)


async def main() -> None:
    global open_again  # noqa: PLW0603  (a program of one page)
    queue = Queue("orders", redis_url=URL)
    worker = Worker("orders", ship, redis_url=URL, max_attempts=4, concurrency=1)
    running = asyncio.create_task(worker.run())
    ways: list[tuple[str, dict[str, Any]]] = [
        ("fixed", {"backoff": BackoffSpec.fixed(5, jitter_ms=1)}),
        ("number", {"backoff": 3, "attempts": 2}),
        ("dict", {"backoff": {"kind": "exponential", "delay_ms": 2, "multiplier": 1.5}}),
        ("attempts", {"attempts": 1}),
    ]
    for way, options in ways:
        await queue.add("order", {"failures": 3}, job_id=way, **options)
    await queue.add("sold-out", {"item": "hat"}, job_id="hat")

    entries = await settled(queue, 3, 12)
    print(sorted(runs.items()))
    print(sorted((entry["name"], entry["reason"]) for entry in entries))
    print(sorted(set(entries[0].keys())), type(entries[0]["payload"]).__name__)
    print(all(entry["dlq_id"] and entry["source_id"] for entry in entries))
    print([len(await queue.peek_dlq(limit=n)) for n in (1, 2, 20)])

    open_again = True
    print(await queue.replay_dlq(limit=1), await queue.replay_dlq(), await queue.replay_dlq())
    print(await settled(queue, 0, 15), sorted(runs.items()))

    await worker.close()
    await running
    await queue.close()


asyncio.run(main())
