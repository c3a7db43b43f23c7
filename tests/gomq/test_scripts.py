"""Edge cases of the scripts, on each kind of server."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis

from tambomq.errors import WrongType
from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.leave import ReapResult
from tambomq.gomq.ops.messages import DispatchResult, ObserveResult
from tambomq.store.sync import Store

OPTIONS = Options()
P, Q = "127.0.0.1:5467", "127.0.0.1:5468"


def items(db: redis.Redis, name: str) -> list[bytes]:
    """What a list holds."""
    return cast("list[bytes]", db.lrange(name, 0, -1))


def join(store: Store, key: str, consumer: str, *peers: str) -> None:
    """Subscribe *consumer* with *peers*."""
    for peer in peers:
        store.run(message_ops.subscribe(key, consumer, peer, OPTIONS))


def send(store: Store, key: str, *elements: bytes) -> DispatchResult:
    """Publish *elements* and dispatch once."""
    store.run(message_ops.push(key, elements))
    return store.run(message_ops.dispatch(key))


def observe(store: Store, consumer: str, peer: str, **more: Any) -> list[bytes]:
    """Everything that was found, keys aside."""
    found = store.run(message_ops.observe(consumer, peer, OPTIONS, **more))
    return [message for _, messages in found.messages for message in messages]


def kept(store: Store, peer: str, acked: str, batch: str, **more: Any) -> ObserveResult:
    """Observe and keep, as consumer c."""
    return store.run(message_ops.observe_kept("c", peer, OPTIONS, acked=acked, batch=batch, **more))


def elements(count: int, size: int = 0) -> list[bytes]:
    """So many, each with its number."""
    return [b"%d" % n + b"x" * size for n in range(count)]


# ── dispatch ─────────────────────────────────────────────────────────────────


def test_every_peer_of_every_consumer_gets_a_copy_in_order(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P, Q)
    join(each, "k", "d", P)
    assert send(each, "k", *elements(5)) == DispatchResult(moved=5, left=0, peers=3)
    for name in (f"MESSAGES_k_c_{P}", f"MESSAGES_k_c_{Q}", f"MESSAGES_k_d_{P}"):
        assert items(each_db, name) == elements(5)
    assert not each_db.exists("QUEUE_k")


def test_nothing_is_dispatched_without_receivers(each: Store, each_db: redis.Redis) -> None:
    assert send(each, "k", b"1", b"2") == DispatchResult(moved=0, left=2, peers=0)
    assert items(each_db, "QUEUE_k") == [b"1", b"2"]
    assert each.run(message_ops.pending())[1] == []
    join(each, "k", "c", P)
    assert each.run(message_ops.pending())[1] == ["k"]
    assert each.run(message_ops.dispatch("k")) == DispatchResult(moved=2, left=0, peers=1)
    assert each.run(message_ops.pending())[1] == []


def test_one_dispatch_makes_no_more_copies_than_allowed(
    each: Store, each_db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ops, "MAX_COPIES", 7)
    join(each, "k", "c", P, Q)
    assert send(each, "k", *elements(5)) == DispatchResult(moved=3, left=2, peers=2)
    assert items(each_db, "QUEUE_k") == elements(5)[3:]
    assert each.run(message_ops.dispatch("k")) == DispatchResult(moved=2, left=0, peers=2)
    assert items(each_db, f"MESSAGES_k_c_{Q}") == elements(5)


def test_a_dispatch_moves_one_at_least(each: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_ops, "MAX_COPIES", 1)
    monkeypatch.setattr(message_ops, "MAX_DISPATCH_BYTES", 1)
    join(each, "k", "c", P, Q)
    assert send(each, "k", *elements(2, size=100)).moved == 1


def test_one_dispatch_reads_no_more_bytes_than_allowed(
    each: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ops, "MAX_DISPATCH_BYTES", 64 * 1000)
    join(each, "k", "c", P)
    # It reads 64 at a time, so what is read when the limit is reached is moved, too.
    assert send(each, "k", *elements(300, size=1000)) == DispatchResult(moved=64, left=236, peers=1)


def test_one_dispatch_moves_a_thousand_at_most(each: Store, each_db: redis.Redis) -> None:
    join(each, "k", "c", P)
    assert send(each, "k", *elements(1001)) == DispatchResult(moved=1000, left=1, peers=1)
    each.run(message_ops.dispatch("k"))
    assert items(each_db, f"MESSAGES_k_c_{P}") == elements(1001)


@pytest.mark.parametrize("broken", [P, Q, "a", "z"])
def test_a_peer_that_cannot_receive_stops_its_key_without_duplicates(
    each: Store, each_db: redis.Redis, broken: str
) -> None:
    peers = {P, Q, "a", "z"}
    join(each, "k", "c", *sorted(peers))
    each_db.set(f"MESSAGES_k_c_{broken}", "no list")
    for _ in range(2):
        with pytest.raises(WrongType):
            send(each, "k", b"1")
    assert items(each_db, "QUEUE_k") == [b"1", b"1"]
    assert not any(each_db.exists(f"MESSAGES_k_c_{peer}") for peer in peers - {broken})
    # Whoever cannot receive cannot observe, so its time is over sooner or later.
    each_db.set(f"LASTACTION_{broken}", 1)
    assert each.follow(leave_ops.reap("c", OPTIONS)) == ReapResult(peers=1, returned=0)
    assert each.run(message_ops.dispatch("k")) == DispatchResult(moved=2, left=0, peers=3)
    for peer in peers - {broken}:
        assert observe(each, "c", peer) == [b"1", b"1"]


def test_an_undone_dispatch_leaves_what_waited_before(each: Store, each_db: redis.Redis) -> None:
    join(each, "k", "c", P)
    join(each, "k", "d", Q)
    send(each, "k", b"1", b"2")
    each_db.delete(f"MESSAGES_k_d_{Q}")
    each_db.set(f"MESSAGES_k_d_{Q}", "no list")
    with pytest.raises(WrongType):
        send(each, "k", b"3")
    assert items(each_db, f"MESSAGES_k_c_{P}") == [b"1", b"2"]


# ── publish_all ──────────────────────────────────────────────────────────────


def test_all_are_published_or_none(each: Store, each_db: redis.Redis) -> None:
    assert each.run(message_ops.push_all({"a": [b"1", b"2"], "b": elements(2500)})) == 2502
    assert items(each_db, "QUEUE_a") == [b"1", b"2"]
    assert items(each_db, "QUEUE_b") == elements(2500)
    each_db.set("QUEUE_z", "no list")
    with pytest.raises(WrongType):
        each.run(message_ops.push_all({"a": [b"3"], "z": [b"4"]}))
    assert items(each_db, "QUEUE_a") == [b"1", b"2"]


# ── observe ──────────────────────────────────────────────────────────────────


def test_fifty_of_each_key_are_observed_at_once(each: Store) -> None:
    for key in ("a", "b"):
        join(each, key, "c", P)
        send(each, key, *elements(60))
    first = dict(each.run(message_ops.observe("c", P, OPTIONS)).messages)
    assert first == {b"a": elements(60)[:50], b"b": elements(60)[:50]}
    rest = dict(each.run(message_ops.observe("c", P, OPTIONS)).messages)
    assert rest == {b"a": elements(60)[50:], b"b": elements(60)[50:]}
    assert observe(each, "c", P) == []


def test_a_reply_is_bounded_in_bytes_but_has_at_least_one_message(each: Store) -> None:
    options = Options(max_message_bytes=65_536)
    join(each, "k", "c", P)
    large = [b"a" * 30_000, b"b" * 30_000, b"c" * 30_000, b"d" * 90_000, b"e"]
    send(each, "k", *large)
    got = [each.run(message_ops.observe("c", P, options)).messages for _ in range(4)]
    assert got == [
        [(b"k", large[:2])],
        [(b"k", large[2:3])],
        [(b"k", large[3:4])],
        [(b"k", [b"e"])],
    ]


def test_each_key_has_its_turn_to_be_the_first(each: Store) -> None:
    options = Options(max_message_bytes=65_536)
    for key in "abc":
        join(each, key, "c", P)
        send(each, key, *[key.encode() * 60_000] * 3)
    firsts = set[bytes]()
    for turn in range(3):
        ((first, messages),) = each.run(message_ops.observe("c", P, options, turn=turn)).messages
        assert messages == [first * 60_000]
        firsts.add(first)
    assert firsts == {b"a", b"b", b"c"}


def test_a_peer_that_was_not_known_receives_from_now_on(each: Store, each_db: redis.Redis) -> None:
    assert each.run(message_ops.observe("c", P, OPTIONS)) == ObserveResult(
        0, is_due=False, messages=[]
    )
    assert each_db.dbsize() == 0
    join(each, "k", "c", P)
    send(each, "k", b"1")
    assert each.run(message_ops.observe("c", Q, OPTIONS)) == ObserveResult(
        1, is_due=True, messages=[]
    )
    send(each, "k", b"2")
    assert observe(each, "c", Q) == [b"2"]
    assert observe(each, "c", P) == [b"1", b"2"]


def test_observing_notes_the_time(each: Store, each_db: redis.Redis) -> None:
    join(each, "k", "c", P)
    each_db.delete(f"LASTACTION_{P}")
    observe(each, "c", P)
    noted, now = int(cast("bytes", each_db.get(f"LASTACTION_{P}"))), each_db.time()[0]
    assert now - 5 <= noted <= now
    assert 0 < each_db.ttl(f"LASTACTION_{P}") <= 300


def test_a_list_of_another_type_keeps_nothing_from_the_others(
    each: Store, each_db: redis.Redis
) -> None:
    for key in "abc":
        join(each, key, "c", P)
        send(each, key, key.encode())
    each_db.delete(f"MESSAGES_b_c_{P}")
    each_db.set(f"MESSAGES_b_c_{P}", "no list")
    for turn in range(3):
        with pytest.raises(WrongType):
            each.run(message_ops.observe("c", P, OPTIONS, turn=turn))
        with pytest.raises(WrongType):
            kept(each, P, "", "b1", turn=turn)
    assert items(each_db, f"MESSAGES_a_c_{P}") == [b"a"]
    assert items(each_db, f"MESSAGES_c_c_{P}") == [b"c"]
    assert not each_db.exists(f"HANDED_c_{P}")


# ── observe_kept ─────────────────────────────────────────────────────────────


def test_a_batch_is_handed_out_again_until_it_is_acknowledged(
    each: Store, each_db: redis.Redis
) -> None:
    join(each, "k", "c", P)
    send(each, "k", *elements(3))
    first = kept(each, P, "", "b1", limit=2)
    assert (first.batch, first.messages) == ("b1", [(b"k", elements(2))])
    for acked in ("", "b0", "b2"):
        assert kept(each, P, acked, "b2") == first
    rest = kept(each, P, "b1", "b2")
    assert (rest.batch, rest.messages) == ("b2", [(b"k", [b"2"])])
    assert kept(each, P, "b2", "b3").messages == []
    assert not each_db.exists(f"HANDED_c_{P}")


def test_a_peer_may_acknowledge_and_take_nothing(each: Store, each_db: redis.Redis) -> None:
    join(each, "k", "c", P)
    send(each, "k", b"1", b"2")
    kept(each, P, "", "b1", limit=1)
    assert kept(each, P, "", "b2", limit=0).messages == [(b"k", [b"1"])]
    assert kept(each, P, "b1", "b2", limit=0).messages == []
    assert not each_db.exists(f"HANDED_c_{P}")
    assert items(each_db, f"MESSAGES_k_c_{P}") == [b"2"]


def test_a_batch_may_hold_any_bytes_and_many_keys(each: Store) -> None:
    blob = bytes(range(256)) * 300
    for key in ("a", "ü_b"):
        join(each, key, "c", P)
        send(each, key, blob, b"", b"\xc1")
    first = kept(each, P, "", "b1")
    assert dict(first.messages) == {
        b"a": [blob, b"", b"\xc1"],
        "ü_b".encode(): [blob, b"", b"\xc1"],
    }
    assert kept(each, P, "", "b2") == first


def test_a_popping_observe_returns_the_kept_batch_first(each: Store) -> None:
    join(each, "k", "c", P)
    send(each, "k", *elements(4))
    kept(each, P, "", "b1", limit=2)
    assert observe(each, "c", P, limit=3) == elements(3)
    kept(each, P, "", "b2")
    send(each, "k", b"4")
    assert observe(each, "c", P, acked="b2") == [b"4"]
