"""Mails to new users: at once, once only, later, with retries, and one that can never arrive."""
# ruff: noqa: T201, ASYNC110  (what it prints is compared; it waits as short programs do)

from __future__ import annotations

import asyncio
import sys
from typing import Any

from chasquimq import BackoffSpec, Job, Queue, UnrecoverableError, Worker  # type: ignore[import-not-found]

URL = sys.argv[1]
lines: list[str] = []


async def send_mail(job: Job) -> dict[str, Any]:
    to = job.data["to"]
    lines.append(f"{job.name} to {to}, attempt {job.attempts_made + 1}")
    if to.endswith("@nowhere"):
        raise UnrecoverableError(f"no such host: {to}")
    if to.endswith("@busy") and job.attempts_made < 2:
        raise ConnectionError("try again")
    return {"to": to, "runs": job.attempts_made + 1}


async def main() -> None:
    async with (
        Queue("mails", redis_url=URL) as queue,
        Worker("mails", send_mail, redis_url=URL, store_results=True, concurrency=4) as worker,
    ):
        running = asyncio.ensure_future(worker.run())
        job = await queue.add("welcome", {"to": "ana@home"})
        print(type(job).__name__, job.name, job.data, job.attempts_made)
        print(await job.wait_for_result(timeout=60))

        unique = await queue.add_unique("welcome", {"to": "bo@home"}, job_id="welcome:bo")
        await queue.add_unique("welcome", {"to": "bo@home"}, job_id="welcome:bo")
        print(unique.id, await unique.wait_for_result(timeout=60))

        backoff = BackoffSpec.exponential(5, multiplier=2.0, max_ms=50, jitter_ms=0)
        busy = await queue.add("hello", {"to": "cy@busy"}, attempts=3, backoff=backoff)
        print(await busy.wait_for_result(timeout=60, poll_interval=0.02))

        later = await queue.add("digest", {"to": "di@home"}, delay_ms=150)
        print(await queue.get_job_result(later.id))
        print(await later.wait_for_result(timeout=60))

        await queue.add("hello", {"to": "ed@nowhere"}, attempts=5)
        while not (entries := await queue.peek_dlq()):
            await asyncio.sleep(0.02)
        print([(entry["name"], entry["reason"]) for entry in entries])

        print(worker.name, worker.is_running, worker.is_closed)
        await worker.close()
        await running
        print(worker.is_running, worker.is_closed)
    print(queue.name, queue.is_closed)
    print(*sorted(lines), sep="\n")


asyncio.run(main())
