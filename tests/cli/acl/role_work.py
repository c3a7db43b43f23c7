"""Everything that a role does, by protocol: what its least rights have to allow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tambomq.chasqui import (
    BlockingQueue,
    CancelJob,
    Job,
    RepeatPattern,
    RetryIn,
    UnrecoverableError,
    Worker,
)
from tambomq.errors import JobFailed
from tambomq.rsmq import AsyncRsmq, Backoff, Message, Reject, Rsmq, RsmqWorker
from tests.servers import eventually_async

WITHIN_S = 60.0
"""Far more than any of this takes."""
RENEWED_S = 1.5
"""How long a handler takes that outlives the lease of its message, so that it is renewed."""

Work = Callable[[str, str], None]


def rsmq_producer(url: str, queue: str) -> None:
    """Make a queue, look at its settings, and send to it."""
    with Rsmq(url, realtime=True, patience_s=0) as rsmq:
        rsmq.create_queue(queue)
        rsmq.get_queue_attributes(queue)
        rsmq.send_message(queue, "one")
        rsmq.send_message(queue, "later", delay=60)
        rsmq.send_messages(queue, [f"{n}" for n in range(600)])


def rsmq_consumer(url: str, queue: str) -> None:
    """Receive in all ways, settle in all ways, and run workers that fail, renew and stop."""
    with Rsmq(url, patience_s=0) as rsmq:
        rsmq.get_queue_attributes(queue)
        _settle_in_all_ways(rsmq, queue)
    asyncio.run(_rsmq_async(url, queue))


def _settle_in_all_ways(rsmq: Rsmq, queue: str) -> None:
    first = rsmq.receive_message(queue, vt=60)
    assert first is not None
    rsmq.change_message_visibility(queue, first.id, 50, receipt=first.receipt)
    rsmq.change_message_visibility(queue, first.id, 60)
    rsmq.delete_message(queue, first.id, receipt=first.receipt)
    rsmq.delete_message(queue, first.id)
    second, *rest = rsmq.receive_messages(queue, 590, vt=60)
    rsmq.delete_messages(queue, [second.id, *rest])
    rsmq.peek_messages(queue)
    rsmq.pop_message(queue)
    while rsmq.receive_message(queue, vt=60):
        pass
    rsmq.receive_message(queue, wait=0.1)


async def _rsmq_async(url: str, queue: str) -> None:
    async with AsyncRsmq(url, patience_s=0) as rsmq:
        await rsmq.receive_messages(queue, 2, wait=0.1)
        for message in await rsmq.peek_messages(queue, 4):
            await rsmq.change_message_visibility(queue, message.id, 0)
    seen: list[Message] = []
    renewed = asyncio.Event()

    async def handle(message: Message) -> None:
        seen.append(message)
        if len(seen) == 1:
            raise Reject("not for us")
        if len(seen) == 2:
            await asyncio.sleep(RENEWED_S)
            renewed.set()
        elif len(seen) > 3:
            await asyncio.sleep(WITHIN_S)
        else:
            raise ValueError("again")

    worker = RsmqWorker(
        queue,
        handle,
        url=url,
        vt=1,
        concurrency=2,
        realtime=True,
        backoff=Backoff(0.1, 0.1),
        grace_s=0.1,
        patience_s=0,
    )
    running = asyncio.create_task(worker.run())
    await eventually_async(
        lambda: (len(seen) > 3 and renewed.is_set()) or running.done(), within_s=WITHIN_S
    )
    worker.stop()
    await running


def chasqui_producer(url: str, queue: str) -> None:
    """Add jobs in all ways, cancel delayed ones, schedule, and ask for results."""
    with BlockingQueue(queue, redis_url=url, announce=True, patience_s=0) as jobs:
        jobs.add("plain", 1)
        jobs.add("known", 1, job_id="known")
        jobs.add("soon", 2, delay_ms=50, attempts=3)
        jobs.add_bulk([{"name": "many", "data": n} for n in range(3)])
        jobs.add_bulk([{"name": "many", "data": 1, "delay_ms": 60_000, "job_id": "m"}])
        jobs.add("later", 3, delay_ms=60_000, job_id="later")
        jobs.cancel_delayed("later")
        jobs.cancel_delayed_bulk(["m", "nobody"])
        jobs.add_unique("burst", 4, job_id="burst", debounce_s=60)
        jobs.add_unique("burst", 5, job_id="burst", debounce_s=0.05)
        jobs.add_unique("rare", 5, job_id="rare", throttle_s=60)
        every = RepeatPattern.every(100)
        jobs.upsert_repeatable_job("tick", 0, repeat=every, limit=2, unless_queued=True)
        jobs.upsert_repeatable_job("tock", 0, repeat=RepeatPattern.every(3_600_000), job_id="tock")
        jobs.get_repeatable_jobs()
        jobs.remove_repeatable_by_key("tock")
        pattern = RepeatPattern.every(3_600_000)
        jobs.upsert_repeatable_job("tack", 0, repeat=pattern, job_id="tack", unless_queued=True)
        jobs.upsert_repeatable_job("tack", 0, repeat=pattern, job_id="tack")
        jobs.get_job_result("known")
        jobs.get_job_result_bulk(["known", "later"])
        jobs.get_progress("known")
        jobs.get_job_logs("known")
        with suppress(TimeoutError, JobFailed):
            jobs.wait_for_result("known", timeout=0.3)
    with BlockingQueue(queue, redis_url=url, dedup="strict", patience_s=0) as jobs:
        jobs.add("strict", 1, job_id="strict")
        jobs.add("strict", 1, job_id="strict later", delay_ms=50)
    with BlockingQueue(queue, redis_url=url, overflow="trim", patience_s=0) as jobs:
        jobs.add("trim", 1)


def chasqui_consumer(url: str, queue: str) -> None:
    """Run a worker that leads, retries, buries, cancels, reports and stops with jobs in hand."""
    asyncio.run(_chasqui_worker(url, queue))


async def _run_job(job: Job, names: list[str]) -> int:
    names.append(job.name)
    await job.update_progress(50)
    await job.log("half way")
    if job.name == "known" and job.attempt == 1:
        raise RetryIn(10)
    if job.name == "plain":
        raise UnrecoverableError("no")
    if job.name == "many":
        raise CancelJob("not now")
    if job.name == "strict":
        await asyncio.sleep(RENEWED_S)
        names.append("renewed")
    if job.name == "tick" and names.count("tick") > 1:
        await asyncio.sleep(WITHIN_S)
    return 1


async def _chasqui_worker(url: str, queue: str) -> None:
    names: list[str] = []

    async def handle(job: Job) -> int:
        return await _run_job(job, names)

    worker = Worker(
        queue,
        handle,
        redis_url=url,
        store_results=True,
        consumer_id="till-1",
        claim_min_idle_ms=1000,
        scheduler_tick_ms=100,
        limiter=(100, 100),
        grace_s=0.1,
        patience_s=0,
    )
    running = asyncio.create_task(worker.run())
    enough = {"plain", "known", "soon", "many", "burst", "rare", "renewed", "tick", "trim"}
    await eventually_async(
        lambda: (
            (enough <= set(names) and names.count("tick") > 1 and worker.stats.completed > 5)
            or running.done()
        ),
        within_s=WITHIN_S,
    )
    await worker.close()
    await running


WORK: dict[tuple[str, str], Work] = {
    ("rsmq", "producer"): rsmq_producer,
    ("rsmq", "consumer"): rsmq_consumer,
    ("chasqui", "producer"): chasqui_producer,
    ("chasqui", "consumer"): chasqui_consumer,
}
