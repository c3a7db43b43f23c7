"""Long polling for asyncio: the twin of `longpoll`, which must not import asyncio."""

from __future__ import annotations

from functools import partial

from tambomq.clock import Deadline
from tambomq.journal.policy import JournalPolicy
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.longpoll import poll_delay_s
from tambomq.rsmq.model import Message, check_seconds
from tambomq.rsmq.ops import messages as message_ops
from tambomq.store.aio import AsyncStore


async def receive(
    store: AsyncStore,
    keys: Keys,
    queue: str,
    count: int,
    *,
    vt: float | None,
    wait: float,
    journal: JournalPolicy | None,
) -> list[Message]:
    """Return the oldest visible messages, waiting up to *wait* seconds for the first."""
    deadline = Deadline(check_seconds("wait", wait))
    plan = partial(message_ops.receive_batch, keys, queue, count, vt=vt, journal=journal)
    result = await store.follow(plan())
    while not (result.messages or deadline.passed):
        async with store.listen(keys.realtime_channel(queue)) as subscription:
            result = await store.follow(plan())
            while subscription.is_usable and not (result.messages or deadline.passed):
                await subscription.wait(poll_delay_s(result, deadline.left_s))
                if subscription.is_usable:
                    result = await store.follow(plan())
    return result.messages
