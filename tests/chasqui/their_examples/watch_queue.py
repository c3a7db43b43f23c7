"""Listening to a queue while it works."""
# ruff: noqa: T201, ASYNC110  (what it prints is compared; it waits as short programs do)

from __future__ import annotations

import asyncio
import sys

from chasquimq import Job, Queue, QueueEvents, UnrecoverableError, Worker  # type: ignore[import-not-found]

URL = sys.argv[1]
PRINTED_EVENTS = ("active", "completed", "failed", "retry-scheduled", "dlq", "drained")


async def handle(job: Job) -> str | None:
    if job.data == "flaky" and job.attempts_made == 0:
        raise ValueError("bad start")
    if job.data == "poison":
        raise UnrecoverableError("never again")
    return None


async def main() -> None:
    events = QueueEvents("watched", redis_url=URL, last_event_id="0", block_ms=100)
    printed: list[str] = []

    async def watch() -> None:
        async for event in events:
            if event.name in PRINTED_EVENTS:
                known = {key: event.fields.get(key) for key in ("attempt", "reason")}
                numbers = [
                    key
                    for key in ("ts", "duration_us", "backoff_ms")
                    if isinstance(event.fields.get(key), int)
                ]
                printed.append(f"{event.name} {event.job_id} {event.job_name!r} {known} {numbers}")

    watching = asyncio.create_task(watch())
    async with (
        Queue("watched", redis_url=URL) as queue,
        Worker("watched", handle, redis_url=URL, concurrency=1, read_block_ms=100) as worker,
    ):
        for data in ("fine", "flaky", "poison"):
            await queue.add("job" if data == "fine" else "", data, job_id=data, backoff=30)
        running = asyncio.create_task(worker.run())
        while sum(line.startswith(("completed", "dlq", "drained")) for line in printed) < 4:
            await asyncio.sleep(0.02)
        await worker.close()
        await running
    await events.close()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    print(events.name)
    print(*sorted(line for line in set(printed)), sep="\n")


asyncio.run(main())
