"""Servers, peers and Redis that crash: every confirmed message is accounted for."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import Self

import pytest
import redis

from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.model import OBSERVE_LIMIT
from tests.gomq.accounts import Published, Received, all_arrive, each_confirms, under_way
from tests.gomq.peer_process import peer_process
from tests.gomq.server_process import GomqProcess, gomq_process
from tests.servers import eventually_async
from tests.servers.run import Server

BACKLOG = 10_000


class _Lost(Exception):
    """What cuts a connection off."""


class _SlowNetwork:
    """Passes on what is sent to Redis; while it is held, later, even of a process that is dead."""

    def __init__(self) -> None:
        self.port = 0
        self.is_held = False
        self.held: list[tuple[asyncio.StreamWriter, bytes]] = []

    @asynccontextmanager
    async def to(self, port: int) -> AsyncIterator[Self]:
        writers: list[asyncio.StreamWriter] = []

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, to = await asyncio.open_connection("127.0.0.1", port)
            writers.extend((writer, to))
            async with under_way(self._requests(reader, to)):
                while data := await there.read(1 << 16):
                    writer.write(data)

        async with await asyncio.start_server(connected, "127.0.0.1") as listening:
            self.port = listening.sockets[0].getsockname()[1]
            yield self
            for each in writers:
                each.close()
                with suppress(OSError):
                    await each.wait_closed()

    async def _requests(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if self.is_held:
                    self.held.append((to, data))
                else:
                    to.write(data)

    def release(self) -> None:
        """Let all that is held arrive."""
        self.is_held = False
        for to, data in self.held:
            to.write(data)


@pytest.mark.slow
async def test_a_server_killed_in_a_backlog_loses_nothing_and_hands_out_nothing_twice(
    server: Server,
) -> None:
    texts = [f"backlog {n}" for n in range(BACKLOG)]
    received = {f"consumer-{n}": Received() for n in range(3)}
    async with AsyncExitStack() as stack:
        process = stack.enter_context(gomq_process(server.url))
        readers = {
            name: await stack.enter_async_context(AsyncGomqClient(process.address, patience_s=20))
            for name in received
        }
        for name, reader in readers.items():
            await reader.subscribe("k", name)
        async with AsyncGomqClient(process.address) as writer:
            for first in range(0, BACKLOG, 1000):
                await writer.publish_many(("k", text) for text in texts[first : first + 1000])
        async with under_way(*(received[name].observe(readers[name], name) for name in received)):
            for part in (1, 2, 3):
                # In the middle of it: some of it is handed out, and most is not.
                for account in received.values():
                    await account.has(texts[: part * 2000])
                await asyncio.to_thread(process.kill)
                await asyncio.to_thread(process.start)
            for account in received.values():
                await account.has(texts)
    for account in received.values():
        assert account.texts == texts


@pytest.mark.slow
async def test_of_two_servers_on_one_redis_one_can_be_killed(server: Server) -> None:
    published = [Published(f"publisher-{n}") for n in range(4)]
    # Each consumer has a peer at either server.
    received = {(consumer, place): Received() for consumer in "ab" for place in (0, 1)}
    done = False
    with gomq_process(server.url) as first, gomq_process(server.url) as second:
        servers = [(first.address, second.address), (second.address,)]
        for consumer, place in received:
            peer = f"{consumer}-{place}"
            async with AsyncGomqClient(second.address, peer=peer) as client:
                await client.subscribe("k", consumer)
        reading = (
            account.at(servers[place], f"{consumer}-{place}", consumer)
            for (consumer, place), account in received.items()
        )
        async with under_way(*reading):
            writing = asyncio.gather(
                *(
                    account.at(servers[n % 2], lambda: done, "k")
                    for n, account in enumerate(published)
                )
            )
            await each_confirms(published, 100)
            await asyncio.to_thread(first.kill)
            await each_confirms(published, 100)
            done = True
            await writing
            await all_arrive(published, received.values())
    for (_, place), account in received.items():
        # A client that is new does not know what its forerunner was handed last.
        assert len(account.twice) <= (0 if place else OBSERVE_LIMIT)
        Received(dict.fromkeys(account.texts)).is_in_order(published)


async def test_a_publish_that_a_killed_server_had_sent_may_come_after_later_ones(
    server: Server,
) -> None:
    published, received = Published("publisher"), Received()
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(_SlowNetwork().to(server.port))
        second = stack.enter_context(gomq_process(server.url))
        first = GomqProcess(f"redis://127.0.0.1:{network.port}")
        stack.callback(first.kill)
        await asyncio.to_thread(first.start)
        before = await stack.enter_async_context(AsyncGomqClient(first.address))
        after = await stack.enter_async_context(AsyncGomqClient(second.address))
        await after.subscribe("k", "c")
        await published.one(before, "k")
        network.is_held = True
        async with under_way(published.one(before, "k")):
            text = b64encode(b"publisher 1")
            await eventually_async(
                lambda: any(text in data for _, data in network.held), within_s=60
            )
            await asyncio.to_thread(first.kill)
            await eventually_async(lambda: bool(published.doubtful), within_s=60)
        await published.one(after, "k")
        network.release()
        async with under_way(received.observe(after, "c")):
            await received.has([f"publisher {n}" for n in range(3)], within_s=60)
    assert published.doubtful == {"publisher 1"}
    assert received.texts == ["publisher 0", "publisher 2", "publisher 1"]
    received.is_in_order([published])


@pytest.mark.parametrize(
    ("numbers", "is_in_order"),
    [
        ((0, 2, 3, 4), True),
        ((0, 1, 2, 4, 3), True),
        ((0, 2, 4, 3, 1), True),
        ((2, 0, 4), False),
        ((0, 1, 4, 2), False),
        ((0, 3, 2, 4), False),
    ],
)
def test_only_a_publish_without_an_answer_may_lose_its_place_and_only_by_being_late(
    numbers: tuple[int, ...], is_in_order: bool
) -> None:
    account = Published("p")
    account.doubtful = {"p 1", "p 3"}
    received = Received(f"p {number}" for number in numbers)
    with nullcontext() if is_in_order else pytest.raises(AssertionError):
        received.is_in_order([account])


@pytest.mark.slow
@pytest.mark.parametrize("goodbye", [True, False])
async def test_a_peer_that_reconnects_two_hundred_times_misses_nothing(
    server: Server, db: redis.Redis, goodbye: bool
) -> None:
    account, received = Published("publisher"), Received()
    with gomq_process(server.url) as process:
        async with AsyncGomqClient(process.address) as writer:
            async with AsyncGomqClient(process.address, peer="me") as first:
                await first.subscribe("k", "c")
            for _ in range(200):
                await account.one(writer, "k")
                await account.one(writer, "k")
                with suppress(_Lost):
                    async with AsyncGomqClient(process.address, peer="me") as reader:
                        # One of the two is left each time for later peers.
                        records = await reader.observe("c", limit=1)
                        if not goodbye:
                            raise _Lost
                        received.texts += [record.text for record in records]
            last = AsyncGomqClient(process.address, peer="me")
            async with last, under_way(received.observe(last, "c")):
                await received.has(account.confirmed)
        assert db.smembers("PEERS_c") == {b"me"}
    assert received.texts == account.confirmed


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_confirmed_messages_survive_a_restart_of_redis(
    private_server: Server, end: str
) -> None:
    published = [Published(f"publisher-{n}") for n in range(3)]
    received = {f"consumer-{n}": Received() for n in range(2)}
    done = False
    async with AsyncExitStack() as stack:
        process = stack.enter_context(gomq_process(private_server.url))

        async def client() -> AsyncGomqClient:
            return await stack.enter_async_context(AsyncGomqClient(process.address))

        readers = {name: await client() for name in received}
        writers = [await client() for _ in published]
        for name, reader in readers.items():
            await reader.subscribe("k", name)
        async with under_way(*(received[name].observe(readers[name], name) for name in received)):
            writing = asyncio.gather(
                *(
                    account.until(lambda: done, writer, "k")
                    for account, writer in zip(published, writers, strict=True)
                )
            )
            for _ in range(2):
                await each_confirms(published, 50)
                await asyncio.to_thread(
                    private_server.stop if end == "stop" else private_server.kill
                )
                await asyncio.to_thread(private_server.restart)
            await each_confirms(published, 50)
            done = True
            await writing
            await all_arrive(published, received.values())
    for account in received.values():
        assert account.twice == set()
        account.is_in_order(published)


async def test_messages_of_a_killed_peer_reach_the_next_subscriber(
    server: Server, db: redis.Redis
) -> None:
    texts = [f"owed {n}" for n in range(200)]
    received = Received()
    with gomq_process(server.url, peer_timeout_s=1) as process:
        async with AsyncGomqClient(process.address) as client:
            await client.publish_many(("k", text) for text in texts)
            with peer_process(process.address, "k", "c", "mortal") as peer:
                assert peer.stdout is not None
                # What it has observed, and never acknowledged, is owed to it as well.
                assert await asyncio.to_thread(peer.stdout.readline) == b"50\n"
            await eventually_async(lambda: db.llen("QUEUE_k") == len(texts), within_s=20)
            assert db.smembers("PEERS_c") == set()
            await client.subscribe("k", "heir")
            async with under_way(received.observe(client, "heir")):
                await received.has(texts)
    assert received.texts == texts
