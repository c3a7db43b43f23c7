"""Reminders: by milliseconds, timedelta and date; scheduled once; called off."""
# ruff: noqa: T201, ASYNC110  (what it prints is compared; it waits as short programs do)

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from chasquimq import Job, Queue, Worker  # type: ignore[import-not-found]

URL = sys.argv[1]
heard: list[tuple[str, str]] = []


async def remind(job: Job) -> None:
    heard.append((job.name, job.data))


async def main() -> None:
    async with Queue("reminders", redis_url=URL, max_delay_secs=3600) as queue:
        soon = datetime.now(UTC) + timedelta(milliseconds=200)
        await queue.add("ms", "after 200", delay_ms=200)
        await queue.add("float", "after 150.7", delay_ms=150.7)
        await queue.add("timedelta", "after a while", delay=timedelta(milliseconds=250))
        await queue.add("aware", "at a time", delay_ms=soon)
        await queue.add("naive", "at a time in UTC", delay_ms=soon.replace(tzinfo=None))
        await queue.add("past", "at once", delay_ms=datetime(2020, 1, 1, tzinfo=UTC))
        await queue.add("zero", "at once", delay_ms=0)

        first = await queue.add_unique("once", "first", job_id="o", delay_ms=300)
        second = await queue.add_unique("once", "second", job_id="o", delay=timedelta(seconds=1))
        print(first.id, second.id)
        await queue.add("gone", "never", job_id="g", delay_ms=60_000)
        print([await queue.cancel_delayed(id) for id in ("g", "g", "unknown")])

        bulk = await queue.add_bulk(
            [
                {"name": "bulk", "data": "now"},
                {"name": "bulk", "data": "later", "delay_ms": 100},
                {"name": "bulk", "data": "later", "delay": timedelta(milliseconds=120)},
                {"name": "bulk", "data": "mine", "job_id": "b"},
            ]
        )
        print([(job.name, job.data, job.attempts_made) for job in bulk], bulk[-1].id)

        async with Worker("reminders", remind, redis_url=URL) as worker:
            running = asyncio.create_task(worker.run())
            while len(heard) < 12:
                await asyncio.sleep(0.02)
            print(await queue.cancel_delayed("o"))
            await worker.close()
            await running
    print(*sorted(heard), sep="\n")


asyncio.run(main())
