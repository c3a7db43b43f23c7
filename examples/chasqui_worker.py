"""Runs the jobs of a queue with retries, dead letters and results, until there are none left.

Start a server with `make run`, fill the queue with `chasqui_producer.py`, then run this file.
REDIS_URL names another server.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter

from tambomq.chasqui import Job, Queue, UnrecoverableError, Worker

QUEUE = "example-mail"

runs: Counter[str] = Counter()


async def handle(job: Job) -> str | None:
    """Succeed, fail at first, fail always, or give up at once: as the job's name says."""
    runs[job.name] += 1
    if job.name == "flaky" and job.attempt == 1:
        raise ConnectionError("not yet")
    if job.name == "broken":
        raise ValueError("it never works")
    if job.name == "nonsense":
        raise UnrecoverableError("nobody can send this")
    return f"sent to {job.data['to']}" if job.name == "welcome" else None


async def until_empty(queue: Queue, worker: Worker) -> None:
    counts = await queue.get_job_counts()
    while counts.waiting or counts.active or counts.delayed:
        await asyncio.sleep(0.02)
        counts = await queue.get_job_counts()
    await worker.close()


async def main(url: str) -> None:
    worker = Worker(QUEUE, handle, redis_url=url, concurrency=10, store_results=True)
    async with Queue(QUEUE, redis_url=url) as queue:
        if (await queue.get_job_counts()).waiting:
            await queue.add("welcome", {"to": "grace@example.com"}, job_id="last")
        await asyncio.gather(worker.run(), until_empty(queue, worker))

        for name, times in sorted(runs.items()):
            print(f"{name}: ran {times} times")
        for letter in sorted(await queue.peek_dlq(), key=lambda letter: letter.name):
            print(f"{letter.name} is dead: {letter.reason}, {letter.detail}")
        print("result:", await queue.get_job_result("last"))
        print("completed", worker.stats.completed, "dead", worker.stats.buried)
        await queue.obliterate()
    print("done")


if __name__ == "__main__":
    # The failures are the point here; a real worker shows its warnings.
    logging.getLogger("tambomq").setLevel(logging.CRITICAL)
    asyncio.run(main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")))
