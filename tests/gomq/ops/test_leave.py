"""The messages of a peer that leaves, on each kind of server."""

from __future__ import annotations

import pytest
import redis

from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.leave import ReapResult
from tambomq.gomq.ops.messages import ObserveResult
from tambomq.store.sync import Store
from tests.gomq.test_scripts import OPTIONS, P, Q, elements, items, join, kept, observe, send


def names(db: redis.Redis) -> set[bytes]:
    """All keys but those that expire, and the counter of queues that were set aside."""
    beside = (b"LASTACTION_",)
    return {name for name in db.scan_iter() if not name.startswith(beside)}


def be_silent(db: redis.Redis, *peers: str) -> None:
    """Set the last action of *peers* to long ago."""
    for peer in peers:
        db.set(f"LASTACTION_{peer}", 1)


# ── unsubscribe ──────────────────────────────────────────────────────────────


def test_messages_that_no_other_peer_awaits_are_requeued_in_order(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    send(each, "k", *elements(3))
    each.run(message_ops.push("k", [b"3"]))
    assert each.follow(leave_ops.unsubscribe("k", "c")) == 3
    assert items(each_db, "QUEUE_k") == elements(4)
    assert names(each_db) == {b"QUEUE_k"}


def test_of_several_peers_the_one_that_waits_for_the_most_returns_it(
    each: Store, each_db: redis.Redis
) -> None:
    peers = [f"p{n}" for n in range(6)]
    for n, peer in enumerate(peers):
        join(each, "k", "c", peer)
        send(each, "k", b"%d" % n)
    assert each.follow(leave_ops.unsubscribe("k", "c")) == 6
    assert items(each_db, "QUEUE_k") == elements(6)


def test_messages_that_another_peer_awaits_or_observed_are_not_requeued(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    send(each, "k", b"0")
    join(each, "k", "d", Q)
    send(each, "k", b"1", b"2", b"3")
    assert observe(each, "d", Q, limit=1) == [b"1"]
    assert each.follow(leave_ops.unsubscribe("k", "c")) == 1
    assert items(each_db, "QUEUE_k") == [b"0"]
    assert observe(each, "d", Q) == [b"2", b"3"]


def test_a_message_that_a_departed_peer_observed_is_not_requeued(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    join(each, "k", "d", Q)
    send(each, "k", *elements(4))
    assert observe(each, "c", P, limit=2) == elements(2)
    assert each.follow(leave_ops.unsubscribe("k", "c")) == 0
    assert each.follow(leave_ops.unsubscribe("k", "d")) == 2
    assert items(each_db, "QUEUE_k") == elements(4)[2:]


def test_an_unacknowledged_batch_does_not_count_as_observed(
    each: Store, each_db: redis.Redis
) -> None:
    for key in "ab":
        join(each, key, "c", P)
        send(each, key, *elements(3))
    first = kept(each, P, "", "b1", limit=2)
    assert each.follow(leave_ops.unsubscribe("a", "c", peer=P, acked="b0")) == 3
    assert items(each_db, "QUEUE_a") == elements(3)
    # The other key's part of the batch still waits to be acknowledged.
    rest = kept(each, P, "", "b2")
    assert (rest.batch, rest.messages) == ("b1", [(b"b", dict(first.messages)[b"b"])])


def test_a_batch_acknowledged_by_unsubscribing_counts_as_observed(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    send(each, "k", *elements(3))
    kept(each, P, "", "b1", limit=2)
    assert each.follow(leave_ops.unsubscribe("k", "c", peer=P, acked="b1")) == 1
    assert items(each_db, "QUEUE_k") == [b"2"]
    assert names(each_db) == {b"QUEUE_k"}


def test_a_handed_message_that_a_departed_peer_observed_is_not_requeued(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    join(each, "k", "d", Q)
    send(each, "k", b"0")
    kept(each, P, "", "b1")
    assert observe(each, "d", Q) == [b"0"]
    assert each.follow(leave_ops.unsubscribe("k", "d")) == 0
    assert each.follow(leave_ops.unsubscribe("k", "c")) == 0
    assert names(each_db) == set()


def test_a_handed_message_that_a_departed_peer_observed_is_not_requeued_with_others(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    join(each, "k", "d", Q)
    send(each, "k", *elements(3))
    kept(each, P, "", "b1", limit=2)
    assert observe(each, "d", Q, limit=2) == elements(2)
    assert each.follow(leave_ops.unsubscribe("k", "d")) == 0
    assert each.follow(leave_ops.unsubscribe("k", "c")) == 1
    assert items(each_db, "QUEUE_k") == [b"2"]


def test_handed_messages_are_requeued_when_the_last_peer_leaves(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    join(each, "k", "d", Q)
    send(each, "k", b"0")
    kept(each, P, "", "b1")
    assert each.follow(leave_ops.unsubscribe("k", "d")) == 0
    assert each.follow(leave_ops.unsubscribe("k", "c")) == 1
    assert items(each_db, "QUEUE_k") == [b"0"]


def test_unsubscribing_without_a_subscription_changes_nothing(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    before = names(each_db)
    assert each.follow(leave_ops.unsubscribe("k", "d")) is None
    assert each.follow(leave_ops.unsubscribe("l", "c")) is None
    assert names(each_db) == before


def test_unsubscribing_from_one_key_leaves_the_others(each: Store, each_db: redis.Redis) -> None:
    for key in "ab":
        join(each, key, "c", P)
        send(each, key, key.encode())
    assert each.follow(leave_ops.unsubscribe("a", "c")) == 1
    assert each_db.smembers("SUBSCRIBED_KEYS") == {b"QUEUE_b"}
    assert observe(each, "c", P) == [b"b"]


def test_a_peer_that_comes_with_a_second_key_is_counted_for_the_first(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "a", "c", P)
    send(each, "a", b"0")
    join(each, "b", "c", Q)
    send(each, "a", b"1")
    assert observe(each, "c", Q) == [b"1"]
    assert each.follow(leave_ops.unsubscribe("a", "c")) == 1
    assert items(each_db, "QUEUE_a") == [b"0"]


@pytest.mark.slow
def test_the_data_of_departed_peers_is_bounded(store: Store, db: redis.Redis) -> None:
    join(store, "k", "stays", P)
    for n in range(900):
        # Each has observed one of two.
        join(store, "k", f"c{n}", Q)
        send(store, "k", b"x", b"x")
        observe(store, f"c{n}", Q, limit=1)
        store.follow(leave_ops.unsubscribe("k", f"c{n}"))
        observe(store, "stays", P)
    assert len(db.hget("TALLY_k", "seen") or b"") < 6_000
    assert db.hlen("TALLY_k") == 3


# ── reap ─────────────────────────────────────────────────────────────────────


def test_a_silent_peer_is_disconnected_and_its_undelivered_messages_are_kept(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    send(each, "k", b"0", b"1")
    join(each, "k", "c", Q)
    send(each, "k", b"2")
    assert each.follow(leave_ops.reap("c", OPTIONS)) == ReapResult(peers=0, returned=0)
    be_silent(each_db, P)
    assert each.follow(leave_ops.reap("c", OPTIONS)) == ReapResult(peers=1, returned=2)
    assert each_db.smembers("PEERS_c") == {Q.encode()}
    assert not each_db.exists(f"MESSAGES_k_c_{P}")
    assert items(each_db, "QUEUE_k") == [b"0", b"1"]
    assert observe(each, "c", Q) == [b"2"]


def test_silent_peers_that_go_together_return_all_in_order(
    each: Store, each_db: redis.Redis
) -> None:
    peers = [f"p{n}" for n in range(6)]
    for n, peer in enumerate(peers):
        for key in "ab":
            join(each, key, "c", peer)
            send(each, key, b"%d" % n)
    kept(each, "p0", "", "b1", limit=2)
    be_silent(each_db, *peers)
    assert each.follow(leave_ops.reap("c", OPTIONS)) == ReapResult(peers=6, returned=12)
    assert items(each_db, "QUEUE_a") == items(each_db, "QUEUE_b") == elements(6)
    assert not [name for name in names(each_db) if name.startswith((b"HANDED_", b"MESSAGES_"))]


def test_a_consumer_without_peers_stays_subscribed_and_drains_nothing(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    be_silent(each_db, P)
    each.follow(leave_ops.reap("c", OPTIONS))
    assert send(each, "k", b"0").moved == 0
    assert each_db.smembers("CONSUMERS_k") == {b"c"}
    assert each.run(message_ops.observe("c", P, OPTIONS)).is_due
    assert each.run(message_ops.dispatch("k")).moved == 1
    assert observe(each, "c", P) == [b"0"]


@pytest.mark.parametrize("noted", [None, "soon", ["no", "string"]])
def test_a_peer_without_a_valid_last_action_gets_one(
    each: Store, each_db: redis.Redis, noted: str | list[str] | None
) -> None:
    join(each, "k", "c", P)
    each_db.delete(f"LASTACTION_{P}")
    if isinstance(noted, str):
        each_db.set(f"LASTACTION_{P}", noted)
    elif noted:
        each_db.rpush(f"LASTACTION_{P}", *noted)
    assert each.follow(leave_ops.reap("c", OPTIONS)).peers == 0
    assert int(each_db.get(f"LASTACTION_{P}") or 0) > 1


def test_a_clock_that_was_set_back_keeps_no_silent_peer(each: Store, each_db: redis.Redis) -> None:
    join(each, "k", "c", P)
    now = each_db.time()[0]
    each_db.set(f"LASTACTION_{P}", now + 600)
    assert each.follow(leave_ops.reap("c", OPTIONS)).peers == 0
    assert int(each_db.get(f"LASTACTION_{P}") or 0) <= each_db.time()[0]
    be_silent(each_db, P)
    assert each.follow(leave_ops.reap("c", OPTIONS)).peers == 1


def test_no_peer_is_disconnected_early_though_times_are_whole_seconds(
    each: Store, each_db: redis.Redis
) -> None:
    options = Options(peer_timeout_s=30)
    join(each, "k", "c", P)
    now = each_db.time()[0]
    # Noted 30 s ago, it may be that 29.1 s have passed.
    each_db.set(f"LASTACTION_{P}", now - 29)
    assert each.follow(leave_ops.reap("c", options)).peers == 0
    each_db.set(f"LASTACTION_{P}", now - 31)
    assert each.follow(leave_ops.reap("c", options)).peers == 1


# ── give_back ────────────────────────────────────────────────────────────────


def test_popped_messages_that_are_given_back_come_before_newer_ones(each: Store) -> None:
    for key in "ab":
        join(each, key, "c", P)
        send(each, key, *elements(3))
    found = each.run(message_ops.observe("c", P, OPTIONS))
    send(each, "a", b"3")
    assert each.run(message_ops.give_back("c", P, found)) == 6
    again = dict(each.run(message_ops.observe("c", P, OPTIONS)).messages)
    assert again == {b"a": elements(4), b"b": elements(3)}


def test_no_message_waits_for_a_peer_that_no_longer_receives_its_key(
    each: Store, each_db: redis.Redis
) -> None:
    for key in "ab":
        join(each, key, "c", P)
        send(each, key, *elements(3))
    found = each.run(message_ops.observe("c", P, OPTIONS))
    each.follow(leave_ops.unsubscribe("a", "c"))
    assert each.run(message_ops.give_back("c", P, found)) == 3
    assert not each_db.exists(f"MESSAGES_a_c_{P}")
    each.follow(leave_ops.unsubscribe("b", "c"))
    assert each.run(message_ops.give_back("c", P, found)) == 0
    assert names(each_db) == {b"QUEUE_b"}


def test_giving_back_no_messages_changes_nothing(each: Store) -> None:
    join(each, "k", "c", P)
    assert each.run(message_ops.give_back("c", P, ObserveResult(1, is_due=False, messages=[]))) == 0
