"""Handles what BRPOP takes off a list, or what a channel publishes, until SIGTERM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import redis.asyncio as redis

from tests.chaos.role import RoleContext, main
from tests.chaos.roles.plain_sender import NAME

CONCURRENCY = 10
_LOOK_EVERY_S = 0.2


async def _popped(context: RoleContext, db: redis.Redis) -> AsyncIterator[str]:
    while not context.stopping.is_set():
        if found := await db.brpop([NAME], timeout=_LOOK_EVERY_S):
            yield str(found[1])


async def _published(context: RoleContext, db: redis.Redis) -> AsyncIterator[str]:
    async with db.pubsub() as channel:
        await channel.subscribe(NAME)
        found = None
        while found or not context.stopping.is_set():
            if found := await channel.get_message(True, timeout=_LOOK_EVERY_S):
                yield found["data"]


async def work(context: RoleContext) -> None:
    """Handle messages until the program is to end, and finish those that have begun."""
    free = asyncio.Semaphore(CONCURRENCY)
    receive = _published if context.options.get("publish") else _popped

    async def handle(text: str) -> None:
        await context.handle(text, 1)
        free.release()

    async with (
        redis.Redis.from_url(context.url, decode_responses=True) as db,
        asyncio.TaskGroup() as handlers,
    ):
        async for text in receive(context, db):
            await free.acquire()
            handlers.create_task(handle(text))


def program(context: RoleContext) -> None:
    """Handle messages until the program is to end."""
    asyncio.run(work(context))


if __name__ == "__main__":
    main(program)
