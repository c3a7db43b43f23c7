"""The traffic of ``tambo demo`` through RSMQ and ChasquiMQ. Both delete what they created.

With --keep they are kept, with a journal.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tambomq.chasqui import BackoffSpec, Job, Queue, UnrecoverableError, Worker
from tambomq.cli.demo.display import DemoPlan, DemoResult, together
from tambomq.errors import QueueNotFound
from tambomq.rsmq import AsyncRsmq, Message

HIDDEN_S: Final = 1.0
DELAY_MS: Final = 1000
RETRY_MS: Final = 200
_LOOK_EVERY_S: Final = 0.05
_AT_ONCE: Final = 50
_TAKES_S: Final = {"greet": 0.02, "remind": 0.06, "flaky": 0.1}


async def rsmq(plan: DemoPlan, outcome: DemoResult) -> None:
    """Send, receive and delete messages; one is not deleted, and comes again."""
    queue = plan.name
    outcome.expect(plan.count + 1, "came again")
    async with AsyncRsmq(plan.redis_url, journal=(queue,) if plan.keep else ()) as client:
        try:
            await client.create_queue(queue)
            outcome.say(f"{plan.count} messages to the queue {queue}")
            await together(_send(client, plan, outcome), _receive(client, plan, outcome))
            left = (await client.get_queue_attributes(queue)).msgs
            outcome.check(left == 0, f"{left} messages are left")
        finally:
            # Cancelled while it was made, it may be there or not.
            with suppress(QueueNotFound):
                if not plan.keep:
                    await client.delete_queue(queue)


async def _send(client: AsyncRsmq, plan: DemoPlan, outcome: DemoResult) -> None:
    async for numbers in plan.steps():
        outcome.sent += len(await client.send_messages(plan.name, map(str, numbers)))


async def _receive(client: AsyncRsmq, plan: DemoPlan, outcome: DemoResult) -> None:
    first: list[str] = []
    while outcome.received < outcome.total:
        done: list[Message] = []
        for message in await client.receive_messages(plan.name, _AT_ONCE, wait=1):
            outcome.got()
            if message.rc > 1:
                outcome.note("came again", "message 0 is visible again, and received again")
            else:
                first.append(message.text)
            if (message.text, message.rc) != ("0", 1):
                done.append(message)
                continue
            await client.change_message_visibility(plan.name, message.id, HIDDEN_S)
            outcome.say(f"message 0 is not deleted: hidden for {HIDDEN_S:g} s")
        if done:
            await client.delete_messages(plan.name, done)
    again = outcome.notes["came again"]
    outcome.check(first == [str(n) for n in range(plan.count)], "the messages came in disorder")
    outcome.check(again == 1, f"{again} messages came again, not 1")


async def chasqui(plan: DemoPlan, outcome: DemoResult) -> None:
    """Run jobs: some at once, some later, some that fail at first, and one that is hopeless."""
    work = _Work(plan, outcome)
    outcome.expect(plan.count + 2 * work.some, "delayed", "retried", "dead")
    async with Queue(plan.name, redis_url=plan.redis_url, journal=plan.keep) as queue:
        try:
            with silent("tambomq.chasqui"):
                await work.done(queue)
            counts = await queue.get_job_counts()
            left = counts.waiting + counts.active + counts.delayed
            outcome.check(left == 0, f"{left} jobs are left")
            outcome.check(counts.dead == 1, f"{counts.dead} jobs are dead, not 1")
        finally:
            if not plan.keep:
                await queue.obliterate(force=True)


class _Work:
    """The jobs, and the worker that runs them."""

    def __init__(self, plan: DemoPlan, outcome: DemoResult) -> None:
        self._plan, self._outcome = plan, outcome
        self.some = max(1, plan.count // 10)
        """How many are delayed, and how many fail at first."""

    async def done(self, queue: Queue) -> None:
        """Add all jobs and wait until all have ended."""
        outcome = self._outcome
        worker = Worker(queue.name, self._run, redis_url=self._plan.redis_url, concurrency=10)
        await together(worker.run(), self._feed(queue, worker))
        for what in ("retried", "delayed"):
            found = outcome.notes[what]
            outcome.check(found == self.some, f"{found} jobs were {what}, not {self.some}")
        outcome.check(outcome.received == outcome.total, "a job ran too often")

    async def _feed(self, queue: Queue, worker: Worker) -> None:
        outcome, backoff = self._outcome, BackoffSpec("fixed", RETRY_MS)
        outcome.say(f"{outcome.total + 1} jobs to the queue {queue.name}")
        special = [{"name": "remind", "data": n, "delay_ms": DELAY_MS} for n in range(self.some)]
        special += [{"name": "flaky", "data": n, "backoff": backoff} for n in range(self.some)]
        outcome.sent += len(await queue.add_bulk([*special, {"name": "hopeless", "data": None}]))
        async for numbers in self._plan.steps():
            jobs = [{"name": "greet", "data": n} for n in numbers]
            outcome.sent += len(await queue.add_bulk(jobs))
        while True:
            counts = await queue.get_job_counts()
            if outcome.received >= outcome.total and counts.dead:
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        await worker.close()

    async def _run(self, job: Job) -> None:
        outcome = self._outcome
        if self._plan.keep:
            # Somebody will look at how long jobs take.
            mean_s = _TAKES_S.get(job.name, _TAKES_S["greet"])
            await asyncio.sleep(random.expovariate(1 / mean_s))
        if job.name == "hopeless":
            outcome.note("dead", "a hopeless job is dead at once")
            raise UnrecoverableError("nobody can do this")
        if job.name == "flaky" and job.attempt == 1:
            outcome.note("retried", f"a job fails, and will run again in {RETRY_MS} ms")
            raise RuntimeError("not yet")
        if job.name == "remind":
            outcome.note("delayed", f"a job runs that was delayed by {DELAY_MS} ms")
        outcome.got()


@contextmanager
def silent(logger: str) -> Iterator[None]:
    """Hide the log of *logger*'s failures: the demo causes them on purpose."""
    handler = logging.NullHandler()
    logging.getLogger(logger).addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger(logger).removeHandler(handler)
