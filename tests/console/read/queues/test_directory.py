from __future__ import annotations

import asyncio

import pytest
import redis

from tambomq.console.model import QueueRef
from tambomq.console.read.queues import directory as module
from tambomq.console.read.queues.directory import QueueDirectory
from tambomq.rsmq.keys import Keys
from tests.console.read.conftest import CountingStore


@pytest.fixture
def found(counting_store: CountingStore) -> QueueDirectory:
    return QueueDirectory(counting_store, Keys())


async def test_queues_of_all_protocols_are_found(found: QueueDirectory, db: redis.Redis) -> None:
    db.sadd("rsmq:QUEUES", "orders")
    db.xadd("{chasqui:only dead letters}:dlq", {"d": b"x"})
    db.rpush("QUEUE_news", b"x")
    db.sadd("SUBSCRIBED_KEYS", "QUEUE_empty")
    db.set("{chasqui:mails}:result:x", b"of a queue that is gone")
    assert [str(ref) for ref in await found.refs()] == [
        "chasqui:only dead letters",
        "gomq:empty",
        "gomq:news",
        "rsmq:orders",
    ]


async def test_a_new_queue_of_a_small_server_is_found_soon(
    found: QueueDirectory, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHORT_EVERY_S", 0)
    assert await found.refs() == []
    db.sadd("rsmq:QUEUES", "orders")
    assert await found.refs() == [QueueRef("rsmq", "orders")]


async def test_many_keys_are_not_scanned_again_so_soon(
    found: QueueDirectory,
    db: redis.Redis,
    counting_store: CountingStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SHORT_EVERY_S", 0)
    monkeypatch.setattr(module, "SCAN_EVERY_S", 3600)
    db.mset({f"another application's {number}": "x" for number in range(10_000)})
    await found.refs()
    counting_store.calls.clear()
    await found.refs()
    assert counting_store.calls == {}


async def test_a_complete_scan_is_kept_for_a_while(
    found: QueueDirectory, counting_store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHORT_EVERY_S", 3600)
    await found.refs()
    counting_store.calls.clear()
    await found.refs()
    assert counting_store.calls == {}


async def test_a_deleted_queue_is_forgotten_by_the_next_scan(
    found: QueueDirectory, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHORT_EVERY_S", 0)
    db.xadd("{chasqui:a}:stream", {"d": b"x"})
    assert await found.refs() == [QueueRef("chasqui", "a")]
    db.delete("{chasqui:a}:stream")
    assert await found.refs() == []


async def test_a_server_with_very_many_keys_is_scanned_in_parts(
    found: QueueDirectory,
    db: redis.Redis,
    counting_store: CountingStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FIRST_WITHIN_S", 0)
    db.mset({f"another application's {number}": "x" for number in range(50_000)})
    db.xadd("{chasqui:a}:stream", {"d": b"x"})
    parts = 0
    while not await found.refs() or parts < 4:
        parts += 1
        assert sum(counting_store.calls.values()) <= parts * module.PAGES
    assert await found.refs() == [QueueRef("chasqui", "a")]


async def test_callers_at_the_same_time_share_one_scan(
    found: QueueDirectory, db: redis.Redis, counting_store: CountingStore
) -> None:
    db.sadd("rsmq:QUEUES", "orders")
    asked = await asyncio.gather(*(found.refs() for _ in range(5)))
    assert asked == [[QueueRef("rsmq", "orders")]] * 5
    together = sum(counting_store.calls.values())
    counting_store.calls.clear()
    await QueueDirectory(counting_store, Keys()).refs()
    assert together == sum(counting_store.calls.values())
