"""GOMQ's journals: a message is published and journalled in one step, or not at all.

Deliveries: test_journal_arrivals.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import redis

from tambomq.errors import BrokerError, BrokerRefused, InvalidFormat, JournalFull, WrongType
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import keys, wire
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.model import Options
from tambomq.gomq.ops.journal import push_recorded
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.grpc_server import GomqServer
from tambomq.gomq.server.service import Service
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.store.sync import Store
from tests.gomq.conftest import Peer, Serve
from tests.gomq.server_process import gomq_process
from tests.journal.looking import bodies, commit_all, records, state
from tests.servers import Server, eventually_async

JOURNAL = JournalKeys("gomq", "orders")
CALLER = Caller("peer")


def elements(*payloads: bytes) -> list[bytes]:
    return [wire.encode(f"id{n}", "today", each) for n, each in enumerate(payloads)]


def stored(db: redis.Redis, key: str) -> list[bytes]:
    """Return the payloads that wait in a main queue."""
    found: Any = db.lrange(keys.queue(key), 0, -1)
    return [wire.decode(each).payload for each in found]


def push(store: Store, recording: JournalPolicy, batches: Mapping[str, Sequence[bytes]]) -> int:
    return store.run(push_recorded(recording, batches))


async def publish(service: Service, key: str, payload: bytes) -> None:
    await service.publish(pb.PublishRecord(key=key, payload=payload), CALLER)


def test_pushed_messages_are_journalled(each: Store, each_db: redis.Redis) -> None:
    recording = JournalPolicy("gomq", ("ord*",))
    batch = elements(b"a", b"", b"\0\xff")
    assert push(each, recording, {"orders": batch, "plain": batch}) == 6
    assert stored(each_db, "orders") == stored(each_db, "plain") == [b"a", b"", b"\0\xff"]
    found: Any = each_db.xrange(JOURNAL.journal)
    assert [list(fields) for _, fields in found] == [[b"o", b"e", b"id", b"ts", b"d"]] * 3
    assert [(fields[b"id"], fields[b"d"]) for _, fields in found] == [
        (b"id0", b"a"),
        (b"id1", b""),
        (b"id2", b"\0\xff"),
    ]
    assert [fields[b"o"] for _, fields in found] == [b"101", b"201", b"303"]
    assert not each_db.exists(JournalKeys("gomq", "plain").journal)


def test_many_are_pushed_in_their_order(each: Store, each_db: redis.Redis) -> None:
    payloads = [b"%d" % n for n in range(2500)]
    push(each, JournalPolicy("gomq", ("*",)), {"orders": elements(*payloads)})
    assert stored(each_db, "orders") == payloads
    found: Any = each_db.xrange(JOURNAL.journal)
    assert [fields[b"d"] for _, fields in found] == payloads


def test_a_full_journal_refuses_all_of_a_batch(each: Store, each_server: Server) -> None:
    recording = JournalPolicy("gomq", ("orders",), JournalBounds(max_entries=2))
    push(each, recording, {"orders": elements(b"a")})
    with redis.Redis.from_url(each_server.url) as db:
        with pytest.raises(JournalFull, match="'orders'"):
            push(each, recording, {"plain": elements(b"x"), "orders": elements(b"b", b"c")})
        assert not db.exists(keys.queue("plain"))
        assert stored(db, "orders") == [b"a"]
    found = state(each_server.url, "gomq", "orders")
    assert found is not None
    assert (found.entries, found.refused) == (1, 2)
    commit_all(each_server.url, "gomq", "orders")
    push(each, recording, {"orders": elements(b"b")})


@pytest.mark.parametrize("key", [JOURNAL.journal, JOURNAL.state, keys.queue("orders")])
def test_a_key_of_another_type_stops_all(each: Store, each_db: redis.Redis, key: str) -> None:
    each_db.set(key, "x")
    batches = {"plain": elements(b"x"), "orders": elements(b"y")}
    with pytest.raises(WrongType):
        push(each, JournalPolicy("gomq", ("*",)), batches)
    assert list(each_db.scan_iter()) == [key.encode()]


async def test_published_messages_are_journalled(serve: Serve, server: Server) -> None:
    service = await serve(journal=("orders",))
    await asyncio.gather(*(publish(service, "orders", b"%d" % n) for n in range(5)))
    await publish(service, "other", b"x")
    many = [pb.PublishRecord(key=key, payload=b"many") for key in ("orders", "other", "orders")]
    await service.publish_many(pb.PublishRecords(records=many), CALLER)
    entries = await asyncio.to_thread(records, server.url, "gomq", "orders")
    assert [each.body for each in entries] == [b"0", b"1", b"2", b"3", b"4", b"many", b"many"]
    with redis.Redis.from_url(server.url) as db:
        found: Any = db.lrange(keys.queue("orders"), 0, -1)
        assert [wire.decode(each).id for each in found] == [each.id for each in entries]
        assert not db.exists(JournalKeys("gomq", "other").journal)


async def test_a_service_without_journals_leaves_no_trace(
    service: Service, db: redis.Redis
) -> None:
    await publish(service, "orders", b"x")
    assert list(db.scan_iter("{tambo*")) == []


async def test_a_redelivery_to_a_watcher_is_journalled_again(serve: Serve, server: Server) -> None:
    peer = Peer(await serve(journal=("orders",)))
    await peer.subscribe("orders")
    await publish(peer.service, "orders", b"x")
    watching = peer.watch()
    await anext(watching)
    await watching.aclose()

    async def comes_again() -> bool:
        return await peer.observe() == [b"x"]

    await eventually_async(comes_again)
    entries = await asyncio.to_thread(records, server.url, "gomq", "orders")
    assert [each.event for each in entries] == ["sent", "delivered", "delivered"]


async def test_the_error_of_a_full_journal_says_what_to_do(server: Server) -> None:
    options = Options(journal=("orders",), journal_bounds=JournalBounds(max_entries=2))
    async with (
        GomqServer(server.url, port=0, options=options) as gomq,
        AsyncGomqClient("{}:{}".format(*gomq.address)) as client,
    ):
        await client.publish("orders", "a")
        with pytest.raises(BrokerRefused, match=r"RESOURCE_EXHAUSTED.*let its readers commit"):
            await client.publish_many([("orders", "b"), ("orders", "c")])


@pytest.mark.parametrize("journal", ["orders", ("",)])
def test_an_invalid_pattern_is_refused(journal: Any) -> None:
    with pytest.raises(InvalidFormat):
        Options(journal=journal)


async def test_a_killed_server_has_recorded_what_it_stored(server: Server) -> None:
    confirmed: list[bytes] = []

    async def write(address: str, name: str) -> None:
        async with AsyncGomqClient(address, patience_s=0) as client:
            for n in range(100_000):
                payload = f"{name} {n}".encode()
                await client.publish("orders", payload)
                confirmed.append(payload)

    def has_more_than(count: int) -> bool:
        return len(confirmed) > count

    with gomq_process(server.url, journal=["orders"]) as process:
        for part in (1, 2, 3):
            names = [f"{part}.{n}" for n in range(4)]
            writing = [asyncio.ensure_future(write(process.address, name)) for name in names]
            await eventually_async(partial(has_more_than, len(confirmed) + 100), within_s=20)
            await asyncio.to_thread(process.kill)
            failures = await asyncio.gather(*writing, return_exceptions=True)
            assert all(isinstance(each, BrokerError) for each in failures)
            await asyncio.to_thread(process.start)
    with redis.Redis.from_url(server.url) as db:
        kept = stored(db, "orders")
    entries = await asyncio.to_thread(bodies, server.url, "gomq", "orders")
    assert entries == kept
    assert len(set(entries)) == len(entries)
    assert set(confirmed) <= set(entries)


async def test_killed_servers_journal_each_delivery_once(server: Server) -> None:
    payloads, found, kills = [b"%d" % n for n in range(300)], list[bytes](), 0
    with gomq_process(server.url, journal=["orders"]) as process:
        async with AsyncGomqClient(process.address, peer="me") as client:
            await client.subscribe("orders", "c")
            await client.publish_many([("orders", each) for each in payloads])
            while len(found) < len(payloads):
                observing = asyncio.ensure_future(client.observe("c", limit=20))
                if len(found) >= 80 * kills:
                    # The last batch may be acknowledged, or not yet.
                    await asyncio.to_thread(process.kill)
                    await asyncio.to_thread(process.start)
                    kills += 1
                with suppress(BrokerError):
                    found += [each.payload for each in await observing]
    entries = await asyncio.to_thread(records, server.url, "gomq", "orders")
    sent = [each.id for each in entries if each.event == "sent"]
    delivered = [each.id for each in entries if each.event == "delivered"]
    assert found == payloads
    assert delivered == sent
