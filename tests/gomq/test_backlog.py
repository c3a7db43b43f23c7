"""A backlog is shared by all that subscribe before one of them observes, or within a second."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
import redis

from tambomq.bulk.lease_model import LeaseRequest
from tambomq.gomq import keys
from tambomq.gomq.bulk.lease import GomqLeaseOps
from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.store.sync import Store
from tests.gomq.conftest import Peer, Serve, payloads, publish
from tests.gomq.server_process import gomq_process
from tests.servers import Server, eventually, eventually_async

OPTIONS = Options()
LONG_MS = 3_600_000


@pytest.fixture
def held_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock while a test subscribes: only an Observe or a Watch ends the hold."""
    monkeypatch.setattr(message_ops, "BACKLOG_HOLD_MS", LONG_MS)


# ── through the service ──────────────────────────────────────────────────────────


@pytest.mark.usefixtures("held_for_long")
async def test_consumers_that_subscribe_in_turn_share_the_backlog(serve: Serve) -> None:
    service, other = await serve(), await serve()
    await publish(service, "k", b"1", b"2")
    peers = [Peer(service, "a:1", "a"), Peer(other, "b:1", "b"), Peer(other, "b:2", "b")]
    for peer in peers:
        await peer.subscribe("k")
    await publish(other, "k", b"3")
    for peer in peers:
        assert await peer.observe() == [b"1", b"2", b"3"]
        assert await peer.observe() == []


@pytest.mark.usefixtures("held_for_long")
async def test_a_subscriber_after_the_first_observe_gets_later_messages_only(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve()
    await publish(service, "k", b"1")
    first, second = Peer(service, "a:1", "a"), Peer(service, "b:1", "b")
    await first.subscribe("k")
    assert await first.observe_kept("") == [b"1"]
    await second.subscribe("k")
    await publish(service, "k", b"2")
    assert await second.observe() == [b"2"]
    assert not db.exists("HELD")


@pytest.mark.usefixtures("held_for_long")
async def test_a_watch_ends_the_hold_of_the_backlog(serve: Serve) -> None:
    service = await serve()
    await publish(service, "k", b"1")
    first, second = Peer(service, "a:1", "a"), Peer(service, "b:1", "b")
    await first.subscribe("k")
    await second.subscribe("k")
    async with aclosing(second.watch()) as sets:
        assert payloads(await asyncio.wait_for(anext(sets), 30)) == [b"1"]
    assert await first.observe() == [b"1"]


async def test_the_hold_of_the_backlog_ends_after_a_second(serve: Serve, db: redis.Redis) -> None:
    service = await serve()
    await publish(service, "k", b"1")
    await Peer(service, "a:1", "a").subscribe("k")
    await eventually_async(lambda: db.llen("MESSAGES_k_a_a:1") == 1, within_s=20)
    assert not db.exists("QUEUE_k")
    await eventually_async(lambda: not db.exists("HELD"), within_s=20)


@pytest.mark.usefixtures("held_for_long")
async def test_without_a_backlog_a_subscription_holds_no_messages(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve()
    await Peer(service, "a:1", "a").subscribe("k")
    await publish(service, "k", b"1")
    await eventually_async(lambda: db.llen("MESSAGES_k_a_a:1") == 1)
    assert not db.exists("HELD")


def test_after_a_server_that_died_within_that_second_another_delivers_it(
    server: Server, store: Store, db: redis.Redis
) -> None:
    store.run(message_ops.push("k", [b"1"]))
    # A server that has taken the Subscribe, and no more.
    _subscribe(store, "k")
    with gomq_process(server.url):
        eventually(lambda: db.llen("MESSAGES_k_a_a:1") == 1, within_s=30)
    assert not db.exists("QUEUE_k")


# ── in Redis ─────────────────────────────────────────────────────────────────────


def _subscribe(store: Store, key: str, consumer: str = "a") -> None:
    peer = f"{consumer}:1"
    store.run(
        message_ops.subscribe(key, consumer, peer, OPTIONS, hold_ms=message_ops.BACKLOG_HOLD_MS)
    )


@pytest.mark.usefixtures("held_for_long")
def test_a_repeated_subscription_does_not_hold_the_backlog_again(
    each: Store, db: redis.Redis
) -> None:
    each.run(message_ops.push("k", [b"1"]))
    _subscribe(each, "k")
    assert each.run(message_ops.dispatch("k")) == message_ops.DispatchResult(0, 1, 0)
    assert each.run(message_ops.observe("a", "a:1", OPTIONS)).is_due
    assert not each.run(message_ops.observe("a", "a:1", OPTIONS)).is_due
    _subscribe(each, "k")
    assert each.run(message_ops.dispatch("k")) == message_ops.DispatchResult(1, 0, 1)


@pytest.mark.usefixtures("held_for_long")
def test_the_backlog_is_held_again_after_all_peers_were_disconnected(
    store: Store, db: redis.Redis
) -> None:
    _subscribe(store, "k")
    store.run(message_ops.push("k", [b"1"]))
    store.run(message_ops.dispatch("k"))
    db.set("LASTACTION_a:1", 1)
    assert store.follow(leave_ops.reap("a", OPTIONS)).returned == 1
    _subscribe(store, "k", "b")
    assert store.run(message_ops.dispatch("k")).moved == 0
    _subscribe(store, "k", "a")
    assert store.run(message_ops.observe("b", "b:1", OPTIONS)).is_due
    assert store.run(message_ops.dispatch("k")) == message_ops.DispatchResult(1, 0, 2)


@pytest.mark.usefixtures("held_for_long")
def test_an_observer_of_other_keys_does_not_end_the_hold(store: Store) -> None:
    store.run(message_ops.push("k", [b"1"]))
    _subscribe(store, "k", "a")
    _subscribe(store, "other", "b")
    assert not store.run(message_ops.observe("b", "b:1", OPTIONS)).is_due
    assert store.run(message_ops.dispatch("k")).moved == 0


@pytest.mark.usefixtures("held_for_long")
def test_a_lease_consumes_without_waiting_for_other_consumers(store: Store) -> None:
    store.run(message_ops.push("k", [b"1", b"2"]))
    _subscribe(store, "k", "a")
    request = LeaseRequest("k", "nightly", "me")
    store.run(GomqLeaseOps(OPTIONS).attach(request))
    assert store.follow(GomqLeaseOps(OPTIONS).claim(request, 1, "token", 10)).size == 2
    assert len(store.run(message_ops.observe("a", "a:1", OPTIONS)).messages[0][1]) == 2


def test_an_observer_after_the_hold_needs_no_poll_of_a_server(
    store: Store, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ops, "BACKLOG_HOLD_MS", 1)
    store.run(message_ops.push("k", [b"1"]))
    _subscribe(store, "k")
    until_ms = db.zscore("HELD", "k") or 0.0
    eventually(lambda: db.time()[0] * 1000 > until_ms)
    assert store.run(message_ops.observe("a", "a:1", OPTIONS)).is_due
    assert store.run(message_ops.dispatch("k")) == message_ops.DispatchResult(1, 0, 1)
    assert not store.run(message_ops.observe("a", "a:1", OPTIONS)).is_due


def test_the_set_of_held_keys_is_bounded(store: Store, db: redis.Redis) -> None:
    _subscribe(store, "empty")
    assert not db.exists("HELD")
    for n in range(20):
        store.run(message_ops.push(f"k{n}", [b"1"]))
        _subscribe(store, f"k{n}", f"c{n}")
    seconds = db.time()[0]
    # Of these the time is over; and the clock was set back after those.
    db.zadd("HELD", {f"past{n}": (seconds - 3600) * 1000 - n for n in range(50)})
    db.zadd("HELD", {f"future{n}": (seconds + 3600) * 1000 for n in range(50)})
    store.run(message_ops.push("last", [b"1"]))
    _subscribe(store, "last", "last")
    assert db.zcard("HELD") <= 21
    assert 0 < db.pttl("HELD") <= message_ops.BACKLOG_HOLD_MS + 60_000


def test_a_clock_that_was_set_back_holds_no_key_for_longer(store: Store, db: redis.Redis) -> None:
    store.run(message_ops.push("k", [b"1"]))
    _subscribe(store, "k")
    db.zadd("HELD", {"k": 9e15})
    assert store.run(message_ops.dispatch("k")) == message_ops.DispatchResult(1, 0, 1)


def test_a_foreign_key_of_that_name_does_no_harm(store: Store, db: redis.Redis) -> None:
    db.set(keys.HELD, "something else")
    store.run(message_ops.push("k", [b"1"]))
    _subscribe(store, "k")
    assert store.run(message_ops.dispatch("k")) == message_ops.DispatchResult(1, 0, 1)
    assert store.run(message_ops.observe("a", "a:1", OPTIONS)).messages == [(b"k", [b"1"])]
    assert db.get(keys.HELD) == b"something else"
