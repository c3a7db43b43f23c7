"""Jobs that recur: listed, replaced, fired a few times, removed."""
# ruff: noqa: T201, ASYNC110  (what it prints is compared; it waits as short programs do)

from __future__ import annotations

import asyncio
import sys

from chasquimq import Job, MissedFiresPolicy, Queue, RepeatPattern, Worker  # type: ignore[import-not-found]

URL = sys.argv[1]
fired: list[tuple[str, object, int]] = []


async def tick(job: Job) -> None:
    fired.append((job.name, job.data, job.attempts_made))


async def show(queue: Queue) -> None:
    for meta in sorted(await queue.get_repeatable_jobs(), key=lambda meta: str(meta.key)):
        pattern = meta.pattern
        print(
            *(meta.key, meta.job_name, pattern.kind, pattern.expression, pattern.tz),
            *(pattern.interval_ms, meta.limit, meta.start_after_ms, meta.end_before_ms),
            *(meta.missed_fires and meta.missed_fires.to_dict(), meta.next_fire_ms > 0),
        )


async def main() -> None:
    async with Queue("calendar", redis_url=URL) as queue:
        nightly = RepeatPattern.cron("0 3 * * *", tz="Europe/Madrid")
        job = await queue.upsert_repeatable_job(
            "backup", {"full": True}, repeat=nightly, missed_fires=MissedFiresPolicy.fire_once()
        )
        print(job.id, job.name, job.data)
        await queue.upsert_repeatable_job(
            "report",
            None,
            repeat=RepeatPattern.cron("*/10 * * * *"),
            limit=1000,
            start_after_ms=4_000_000_000_000,
            end_before_ms=4_000_009_000_000,
            missed_fires=MissedFiresPolicy.fire_all(7),
        )
        await queue.add("poll", 1, repeat=RepeatPattern.every(90_000))
        await queue.add("poll", 2, repeat={"kind": "every", "interval_ms": 90_000})
        await queue.add("skip", 3, repeat=nightly, missed_fires=MissedFiresPolicy.skip())
        await show(queue)
        print(len(await queue.get_repeatable_jobs(limit=2)))
        print([await queue.remove_repeatable_by_key(key) for key in (job.id, job.id, "none")])
        print(RepeatPattern.every(5).to_dict(), nightly.to_dict())
        print(MissedFiresPolicy.fire_all(2).to_dict(), MissedFiresPolicy.skip().to_dict())
        print(nightly == RepeatPattern.cron("0 3 * * *", tz="Europe/Madrid"))

        await queue.upsert_repeatable_job("tick", "t", repeat=RepeatPattern.every(200), limit=3)
        each_second = RepeatPattern.cron("* * * * * *")
        await queue.upsert_repeatable_job("tock", [1], repeat=each_second, limit=1)
        async with Worker("calendar", tick, redis_url=URL, scheduler_tick_ms=50) as worker:
            running = asyncio.create_task(worker.run())
            while len(fired) < 4:
                await asyncio.sleep(0.02)
            await worker.close()
            await running
        print(sorted(fired, key=str))
        await show(queue)


asyncio.run(main())
