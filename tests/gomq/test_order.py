"""Publishing and observing at once: nothing is lost, and each publisher's order is kept."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from tambomq.gomq.async_client import AsyncGomqClient
from tests.gomq.accounts import Published, Received, under_way
from tests.gomq.server_process import gomq_process
from tests.servers.run import Server

KEYS = ("orders", "mail")
PUBLISHERS = 3


@pytest.mark.parametrize(
    "seconds",
    [1, pytest.param(30, marks=pytest.mark.slow)],
)
async def test_nothing_is_lost_or_moved_while_publishing_and_observing_go_on(
    server: Server, seconds: float
) -> None:
    published = {key: [Published(f"{key}-{n}") for n in range(PUBLISHERS)] for key in KEYS}
    observers, watchers = [Received(), Received()], [Received(), Received()]
    async with AsyncExitStack() as stack:
        process = stack.enter_context(gomq_process(server.url))

        async def client() -> AsyncGomqClient:
            return await stack.enter_async_context(AsyncGomqClient(process.address))

        reading = []
        for place, account in enumerate((*observers, *watchers)):
            reader = await client()
            for key in KEYS:
                await reader.subscribe(key, f"consumer-{place}")
            read = account.observe if account in observers else account.watch
            reading.append(read(reader, f"consumer-{place}"))
        writers = [(await client(), each, key) for key in KEYS for each in published[key]]
        end = time.monotonic() + seconds
        async with under_way(*reading):
            await asyncio.gather(
                *(
                    each.until(lambda: time.monotonic() >= end, writer, key)
                    for writer, each, key in writers
                )
            )
            texts = [text for each in published.values() for one in each for text in one.confirmed]
            for account in (*observers, *watchers):
                await account.has(texts)
    for account in (*observers, *watchers):
        assert len(account.texts) == len(texts)
        assert account.twice == set()
        account.is_in_order(each for accounts in published.values() for each in accounts)
