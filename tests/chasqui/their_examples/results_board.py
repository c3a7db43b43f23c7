"""Results: one by one, in bulk, awaited, and those that never come."""
# ruff: noqa: T201  (what it prints is compared; it waits as short programs do)

from __future__ import annotations

import asyncio
import sys
import warnings
from typing import Any

from chasquimq import Job, Queue, Worker  # type: ignore[import-not-found]

URL = sys.argv[1]


async def compute(job: Job) -> Any:
    if job.name == "echo":
        return job.data
    if job.name == "twice" and job.attempts_made == 0:
        raise ValueError("once more")
    return job.attempts_made if job.name == "twice" else None


async def main() -> None:
    warnings.simplefilter("ignore")
    async with (
        Queue("board", redis_url=URL) as queue,
        Worker("board", compute, redis_url=URL, store_results=True, result_ttl_ms=60_000) as worker,
    ):
        running = asyncio.create_task(worker.run())
        values = [1, "two", [3, {"four": b"4"}], 5.5, False, 0, "", [], {}]
        jobs = await queue.add_bulk([{"name": "echo", "data": value} for value in values])
        print(await asyncio.gather(*(job.wait_for_result(timeout=60) for job in jobs)))
        ids = [job.id for job in jobs]
        print(await queue.get_job_result_bulk([*ids, "unknown"]))
        print(await queue.get_job_result(ids[2]), await queue.get_job_result("unknown"))
        print(await queue.get_job_result_bulk([]))

        twice = await queue.add("twice", None, backoff=1)
        print(await twice.wait_for_result(timeout=60))

        absent = await queue.add("later", 1, delay_ms=60_000)
        try:
            await absent.wait_for_result(timeout=0.3, poll_interval=0.05)
        except asyncio.TimeoutError:  # noqa: UP041  (as older programs spell it)
            print("no result in time")
        for options in ({"timeout": 0}, {"timeout": 1, "poll_interval": -1}):
            try:
                await absent.wait_for_result(**options)
            except ValueError:
                print("no such time")
        await worker.close()
        await running


asyncio.run(main())
