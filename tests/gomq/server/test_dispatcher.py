"""The dispatcher delivers every message to its receivers, in few round trips."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import cast

import pytest
import redis

from tambomq.errors import StoreUnavailable, WrongType
from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.server.dispatcher import Dispatcher
from tambomq.store.aio import AsyncStore
from tests.servers import Server, eventually_async
from tests.store.proxy import Proxy

P = "127.0.0.1:5467"


@pytest.fixture
async def aio(server: Server) -> AsyncIterator[AsyncStore]:
    """An asyncio store on an empty server."""
    opened = AsyncStore(server.url)
    yield opened
    await opened.close()


@pytest.fixture
async def dispatcher(aio: AsyncStore) -> AsyncIterator[Dispatcher]:
    """One that does not look by itself."""
    made = Dispatcher(aio)
    yield made
    await made.stop()


@pytest.fixture
async def looking(dispatcher: Dispatcher) -> AsyncIterator[None]:
    """Run the dispatcher during the test."""
    task = asyncio.create_task(dispatcher.run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def join(store: AsyncStore, key: str, consumer: str = "c", peer: str = P) -> None:
    await store.run(message_ops.subscribe(key, consumer, peer, Options()))


def items(db: redis.Redis, key: str) -> list[bytes]:
    """The dedicated queue."""
    return cast("list[bytes]", db.lrange(f"MESSAGES_{key}_c_{P}", 0, -1))


def calls(db: redis.Redis, command: str) -> int:
    """How often a command was executed."""
    stats = db.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


# ── publish ──────────────────────────────────────────────────────────────────


async def test_all_publishes_of_one_loop_turn_are_one_round_trip(server: Server) -> None:
    with Proxy(server.port) as proxy:
        store = AsyncStore(proxy.url)
        dispatcher = Dispatcher(store)
        await dispatcher.publish("a", b"first")
        before = proxy.requests
        await asyncio.gather(*(dispatcher.publish("ab"[n % 2], b"%d" % n) for n in range(200)))
        assert proxy.requests == before + 1
        await store.close()


async def test_publishes_to_one_key_in_one_loop_turn_are_one_push_in_order(
    dispatcher: Dispatcher, db: redis.Redis
) -> None:
    before = calls(db, "rpush")
    await asyncio.gather(*(dispatcher.publish("k", b"%d" % n) for n in range(100)))
    assert calls(db, "rpush") == before + 1
    assert db.lrange("QUEUE_k", 0, -1) == [b"%d" % n for n in range(100)]


async def test_the_first_message_of_a_new_key_is_dispatched_at_once(
    dispatcher: Dispatcher, aio: AsyncStore, db: redis.Redis
) -> None:
    await join(aio, "k")
    await dispatcher.publish("k", b"1")
    # Nobody looks here: it went together with its publishing.
    assert items(db, "k") == [b"1"]
    assert dispatcher.copies == 1


async def test_a_key_that_refuses_writes_does_not_affect_others_of_the_round_trip(
    dispatcher: Dispatcher, aio: AsyncStore, db: redis.Redis
) -> None:
    await join(aio, "good")
    db.set("QUEUE_bad", "no list")
    good, bad = dispatcher.publish("good", b"1"), dispatcher.publish("bad", b"2")
    with pytest.raises(WrongType):
        await bad
    await good
    assert items(db, "good") == [b"1"]


async def test_a_publish_is_made_though_its_caller_was_cancelled(
    dispatcher: Dispatcher, db: redis.Redis
) -> None:
    dispatcher.publish("k", b"1").cancel()
    await dispatcher.publish("k", b"2")
    assert db.lrange("QUEUE_k", 0, -1) == [b"1", b"2"]


async def test_stopping_waits_for_what_is_under_way(
    dispatcher: Dispatcher, db: redis.Redis
) -> None:
    published = dispatcher.publish("k", b"1")
    await asyncio.sleep(0)
    await dispatcher.stop()
    assert published.done()
    assert db.llen("QUEUE_k") == 1


async def test_a_publish_that_did_not_reach_redis_raises(private_server: Server) -> None:
    store = AsyncStore(private_server.url, patience_s=0)
    dispatcher = Dispatcher(store)
    private_server.kill()
    one, other = dispatcher.publish("a", b"1"), dispatcher.publish("b", b"2")
    for future in (one, other):
        with pytest.raises(StoreUnavailable):
            await future
    with pytest.raises(StoreUnavailable):
        await dispatcher.publish_all({"a": [b"1"]})
    await store.close()


async def test_several_keys_are_published_and_dispatched_in_one_round_trip(server: Server) -> None:
    with Proxy(server.port) as proxy, redis.Redis.from_url(server.url) as db:
        store = AsyncStore(proxy.url)
        dispatcher = Dispatcher(store)
        await join(store, "a")
        await join(store, "b")
        before = proxy.requests
        await dispatcher.publish_all({"a": [b"1", b"2"], "b": [b"3"]})
        assert proxy.requests == before + 1
        assert (items(db, "a"), items(db, "b")) == ([b"1", b"2"], [b"3"])
        await store.close()


# ── dispatch ─────────────────────────────────────────────────────────────────


async def test_a_backlog_larger_than_one_dispatch_is_emptied(
    dispatcher: Dispatcher, aio: AsyncStore, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ops, "MAX_COPIES", 7)
    bodies = [b"%d" % n for n in range(100)]
    db.rpush("QUEUE_k", *bodies)
    await join(aio, "k")
    await dispatcher.dispatch("k")
    assert items(db, "k") == bodies
    assert dispatcher.copies == 100


async def test_a_publish_larger_than_one_dispatch_is_emptied_behind_it(
    dispatcher: Dispatcher, aio: AsyncStore, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ops, "MAX_COPIES", 7)
    await join(aio, "k")
    bodies = [b"%d" % n for n in range(100)]
    await asyncio.gather(*(dispatcher.publish("k", body) for body in bodies))
    await dispatcher.stop()
    assert items(db, "k") == bodies


async def test_dispatching_without_messages_does_nothing(dispatcher: Dispatcher) -> None:
    await dispatcher.dispatch()
    await dispatcher.dispatch("k")
    assert dispatcher.copies == 0


# ── look ─────────────────────────────────────────────────────────────────────


async def test_a_message_pushed_by_a_foreign_client_is_dispatched(
    looking: None, aio: AsyncStore, db: redis.Redis
) -> None:
    await join(aio, "k")
    for n in range(3):
        db.rpush("QUEUE_k", b"%d" % n)
        await eventually_async(lambda n=n: len(items(db, "k")) == n + 1)  # type: ignore[misc]
    assert items(db, "k") == [b"0", b"1", b"2"]


async def test_requeued_messages_are_dispatched_to_the_remaining_peers(
    looking: None, aio: AsyncStore, db: redis.Redis
) -> None:
    await join(aio, "k", "d", "q")
    db.rpush("QUEUE_k", b"0")
    await eventually_async(lambda: db.llen("MESSAGES_k_d_q") == 1)
    await join(aio, "k")
    assert await aio.follow(leave_ops.unsubscribe("k", "d")) == 1
    await eventually_async(lambda: items(db, "k") == [b"0"])


async def test_one_key_that_cannot_be_dispatched_keeps_no_other_waiting(
    looking: None, aio: AsyncStore, db: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("bad", "good"):
        await join(aio, key)
    db.set(f"MESSAGES_bad_c_{P}", "no list")
    for n in range(4):
        db.rpush("QUEUE_bad", b"%d" % n)
        db.rpush("QUEUE_good", b"%d" % n)
        await eventually_async(lambda n=n: len(items(db, "good")) == n + 1)  # type: ignore[misc]
    assert db.llen("QUEUE_bad") == 4
    logged = [record for record in caplog.records if record.levelno >= logging.WARNING]
    (line,) = [record.getMessage() for record in logged]
    assert line.startswith("messages of key 'bad' are not dispatched yet, ")
    assert ": one of the keys QUEUE_bad, " in line


async def test_polling_continues_after_redis_was_down(
    private_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    store = AsyncStore(private_server.url, patience_s=0)
    await join(store, "k")
    looking = asyncio.create_task(Dispatcher(store).run())
    private_server.kill()
    await eventually_async(lambda: "messages are not dispatched yet" in caplog.text)
    private_server.restart()
    with redis.Redis.from_url(private_server.url) as db:
        db.rpush("QUEUE_k", b"0")
        await eventually_async(lambda: items(db, "k") == [b"0"])
    looking.cancel()
    await asyncio.wait([looking])
    await store.close()
