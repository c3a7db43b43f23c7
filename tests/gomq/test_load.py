"""Many publishers and consumers at once: each consumer receives everything, once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from tambomq.gomq.async_client import AsyncGomqClient
from tests.gomq.accounts import Published, Received, under_way
from tests.gomq.server_process import gomq_process
from tests.servers.run import Server

PUBLISHERS, CONSUMERS, MESSAGES = 100, 100, 10


@pytest.mark.slow
async def test_a_hundred_consumers_receive_a_thousand_messages_of_a_hundred_publishers_once_each(
    server: Server,
) -> None:
    published = [Published(f"publisher-{n}") for n in range(PUBLISHERS)]
    received = {f"consumer-{n}": Received() for n in range(CONSUMERS)}
    async with AsyncExitStack() as stack:
        process = stack.enter_context(gomq_process(server.url))

        async def client() -> AsyncGomqClient:
            return await stack.enter_async_context(AsyncGomqClient(process.address))

        readers = {name: await client() for name in received}
        writers = [await client() for _ in published]
        await asyncio.gather(*(reader.subscribe("k", name) for name, reader in readers.items()))

        async def publish(account: Published, writer: AsyncGomqClient) -> None:
            for _ in range(MESSAGES):
                await account.one(writer, "k")

        async with under_way(*(received[n].observe(readers[n], n) for n in received)):
            await asyncio.gather(*map(publish, published, writers))
            texts = {text for account in published for text in account.confirmed}
            assert len(texts) == PUBLISHERS * MESSAGES
            for account in received.values():
                await account.has(texts)
    for account in received.values():
        assert len(account.texts) == len(texts)
        assert account.twice == set()
        account.is_in_order(published)


async def test_messages_of_many_publishers_reach_the_subscribers_of_their_keys(
    server: Server,
) -> None:
    keys = [f"key-{n}" for n in range(20)]
    received = Received()
    with gomq_process(server.url) as process:
        async with (
            AsyncGomqClient(process.address) as reader,
            AsyncGomqClient(process.address) as writer,
        ):
            for key in keys[::2]:
                await reader.subscribe(key, "every-second")
            await asyncio.gather(
                *(writer.publish(key, f"{key} {n}") for key in keys for n in range(50))
            )
            async with under_way(received.observe(reader, "every-second")):
                await received.has(f"{key} {n}" for key in keys[::2] for n in range(50))
            assert len(received.texts) == len(keys[::2]) * 50
            # The others wait for their first subscriber.
            late = Received()
            await reader.subscribe(keys[1], "late")
            async with under_way(late.observe(reader, "late")):
                await late.has(f"{keys[1]} {n}" for n in range(50))
