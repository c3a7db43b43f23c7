"""The twin of `longpoll` for asyncio, apart so that a blocking client does not import asyncio."""

from __future__ import annotations

from tambomq.clock import Deadline
from tambomq.rsmq import ops
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.longpoll import nap_s
from tambomq.rsmq.model import Message, check_seconds
from tambomq.store.aio import AsyncStore


async def receive(
    store: AsyncStore, keys: Keys, queue: str, count: int, *, vt: float | None, wait: float
) -> list[Message]:
    """Return the oldest visible messages, waiting up to *wait* seconds for the first."""
    deadline = Deadline(check_seconds("wait", wait))
    haul = await store.follow(ops.receive_batch(keys, queue, count, vt=vt))
    while not (haul.messages or deadline.passed):
        async with store.listen(keys.notices(queue)) as notices:
            haul = await store.follow(ops.receive_batch(keys, queue, count, vt=vt))
            while notices.sound and not (haul.messages or deadline.passed):
                await notices.wait(nap_s(haul, deadline.left_s))
                if notices.sound:
                    haul = await store.follow(ops.receive_batch(keys, queue, count, vt=vt))
    return haul.messages
