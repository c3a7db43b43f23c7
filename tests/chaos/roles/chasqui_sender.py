"""Adds ChasquiMQ jobs: in every way, or those that all senders add (``options["unique"]``).

One after another, or several at a time if its number is even; or as ``options["batch"]`` says.
"""

from __future__ import annotations

import asyncio
import itertools

from tambomq.chasqui import Queue
from tests.chaos.role import Outgoing, RoleContext, main

QUEUE = "q"
BATCH = 5


async def send(context: RoleContext) -> None:
    """Add jobs until the program is to end."""
    messages = context.messages()
    async with Queue(QUEUE, redis_url=context.url, patience_s=context.lease_s) as queue:
        size = context.options.get("batch", BATCH if context.number % 2 == 0 else 1)
        if size == 1:
            while message := await asyncio.to_thread(next, messages, None):
                with context.sending(message):
                    await queue.add("job", message.text, delay_ms=message.delay_s * 1000 or None)
            return
        while batch := await asyncio.to_thread(lambda: list(itertools.islice(messages, size))):
            with context.sending(*batch):
                await queue.add_bulk([_job(message) for message in batch])


async def send_unique(context: RoleContext) -> None:
    """Add the same jobs as all others that do so: each of them may run once."""
    strict = Queue(QUEUE, redis_url=context.url, patience_s=context.lease_s, dedup="strict")
    async with strict as queue:
        numbers = itertools.count(1)
        while await asyncio.to_thread(next, context.messages(), None):
            message = Outgoing(f"unique:{next(numbers)}:plain")
            with context.sending(message):
                await queue.add_unique("job", message.text, job_id=message.text)


def program(context: RoleContext) -> None:
    """Add jobs until the program is to end."""
    asyncio.run((send_unique if context.options.get("unique") else send)(context))


def _job(message: Outgoing) -> dict[str, object]:
    job: dict[str, object] = {"name": "job", "data": message.text}
    return job | {"delay_ms": message.delay_s * 1000} if message.delay_s else job


if __name__ == "__main__":
    main(program)
