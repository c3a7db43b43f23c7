"""Journal entries of delivered GOMQ messages, on each kind of server."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.errors import WrongType
from tambomq.gomq import keys, wire
from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.journal import push_recorded, record_deliveries
from tambomq.gomq.ops.messages import ObserveResult
from tambomq.journal import ops as journal_ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.store.call import Call
from tambomq.store.sync import Store
from tests.servers import Server

OPTIONS = Options()
P, Q = "127.0.0.1:5467", "127.0.0.1:5468"
CONFIG_VARIABLE, PLAIN = JournalKeys("gomq", "orders"), JournalKeys("gomq", "plain")
RECORDING = JournalPolicy("gomq", ("orders",))


def arrivals(db: redis.Redis, journal: JournalKeys = CONFIG_VARIABLE) -> list[tuple[bytes, bytes]]:
    """Return the id and the consumer of each delivered message."""
    found: Any = db.xrange(journal.journal)
    entries = [fields for _, fields in found if fields[b"e"] == b"delivered"]
    assert all(list(each) == [b"o", b"e", b"id", b"ts", b"n"] for each in entries)
    return [(each[b"id"], each[b"n"]) for each in entries]


def joined(store: Store, consumer: str, *peers: str, key: str = "orders") -> None:
    for peer in peers:
        store.run(message_ops.subscribe(key, consumer, peer, OPTIONS))


def send(
    store: Store, *ids: str, key: str = "orders", recording: JournalPolicy = RECORDING
) -> None:
    store.run(push_recorded(recording, {key: [wire.encode(id, "today", b"x") for id in ids]}))
    store.run(message_ops.dispatch(key))


def observe(
    store: Store,
    peer: str = P,
    *,
    consumer: str = "c",
    acked: str = "",
    recording: JournalPolicy = RECORDING,
    **more: Any,
) -> ObserveResult:
    call = message_ops.observe(consumer, peer, OPTIONS, acked=acked, **more)
    return store.run(record_deliveries(recording, call, consumer))


def kept(store: Store, acked: str, batch: str, peer: str = P, **more: Any) -> ObserveResult:
    call = message_ops.observe_kept("c", peer, OPTIONS, acked=acked, batch=batch, **more)
    return store.run(record_deliveries(RECORDING, call, "c"))


def unsubscribe(store: Store, acked: str) -> None:
    def telling(call: Call[Any]) -> Call[Any]:
        return record_deliveries(RECORDING, call, "c")

    store.follow(leave_ops.unsubscribe("orders", "c", peer=P, acked=acked, recorded=telling))


def test_a_popped_message_is_journalled_once_per_peer(each: Store, each_db: redis.Redis) -> None:
    joined(each, "c", P, Q)
    joined(each, "d", P)
    send(each, "a", "b")
    assert arrivals(each_db) == []
    for peer, consumer in ((P, "c"), (Q, "c"), (P, "d"), (P, "c")):
        observe(each, peer, consumer=consumer)
    assert arrivals(each_db) == [(id, peer) for peer in (b"c", b"c", b"d") for id in (b"a", b"b")]
    found: Any = each_db.xrange(CONFIG_VARIABLE.journal)
    assert [fields[b"e"] for _, fields in found][:2] == [b"sent", b"sent"]
    # Two of a body with one byte, then those without one: the receiver is what counts.
    assert [int(fields[b"o"]) for _, fields in found] == [101 * n for n in range(1, 9)]


def test_messages_above_the_limit_are_journalled_when_observed(
    each: Store, each_db: redis.Redis
) -> None:
    joined(each, "c", P)
    send(each, "a", "b", "c")
    observe(each, limit=2)
    assert [id for id, _ in arrivals(each_db)] == [b"a", b"b"]
    observe(each, limit=0)
    observe(each)
    assert [id for id, _ in arrivals(each_db)] == [b"a", b"b", b"c"]


def test_a_batch_is_journalled_once_when_it_is_acknowledged(
    each: Store, each_db: redis.Redis
) -> None:
    joined(each, "c", P)
    send(each, "a", "b", "c")
    first = kept(each, "", "b1", limit=2)
    for acked in ("", "b0", "b2"):
        assert kept(each, acked, "b2") == first
    assert arrivals(each_db) == []
    rest = kept(each, "b1", "b2")
    assert arrivals(each_db) == [(b"a", b"c"), (b"b", b"c")]
    # As a call that is repeated since its reply was lost.
    assert kept(each, "b1", "b3") == rest
    assert len(arrivals(each_db)) == 2
    kept(each, "b2", "b3", limit=0)
    assert [id for id, _ in arrivals(each_db)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("acked", ["b1", ""])
def test_a_popping_observe_acknowledges_the_kept_batch(
    each: Store, each_db: redis.Redis, acked: str
) -> None:
    joined(each, "c", P)
    send(each, "a", "b")
    kept(each, "", "b1", limit=1)
    observe(each, acked=acked, limit=0)
    assert arrivals(each_db) == []
    observe(each, acked=acked, limit=1)
    assert [id for id, _ in arrivals(each_db)] == ([b"a", b"b"] if acked else [b"a"])


@pytest.mark.parametrize("acked", ["b1", ""])
def test_unsubscribing_acknowledges_the_last_batch(
    each: Store, each_db: redis.Redis, acked: str
) -> None:
    joined(each, "c", P, Q)
    send(each, "a")
    kept(each, "", "b1")
    kept(each, "", "b9", Q)
    unsubscribe(each, acked)
    assert arrivals(each_db) == ([(b"a", b"c")] if acked else [])
    assert each_db.llen(keys.queue("orders")) == (0 if acked else 1)


def test_messages_requeued_from_a_silent_peer_are_not_journalled_as_delivered(
    each: Store, each_db: redis.Redis
) -> None:
    joined(each, "c", P)
    send(each, "a")
    kept(each, "", "b1")
    each_db.set(keys.last_action(P), 1)
    assert each.follow(leave_ops.reap("c", OPTIONS)).returned == 1
    assert arrivals(each_db) == []
    joined(each, "c", Q)
    each.run(message_ops.dispatch("orders"))
    observe(each, Q)
    assert arrivals(each_db) == [(b"a", b"c")]


def test_a_full_journal_keeps_nothing_back_and_counts(each: Store, each_db: redis.Redis) -> None:
    small = JournalPolicy("gomq", ("orders",), JournalBounds(max_entries=4))
    joined(each, "c", P)
    send(each, "a", "b", "c", recording=small)
    assert len(observe(each, recording=small).messages[0][1]) == 3
    assert arrivals(each_db) == [(b"a", b"c")]
    state = each.run(journal_ops.state(CONFIG_VARIABLE))
    assert state is not None
    assert (state.entries, state.refused, state.dropped) == (4, 0, 2)


def test_a_long_name_of_a_consumer_counts(each: Store, each_db: redis.Redis) -> None:
    consumer = "c" * 1000
    joined(each, consumer, P)
    small = JournalPolicy("gomq", ("orders",), JournalBounds(max_bytes=1250))
    send(each, "a", "b", recording=small)
    observe(each, consumer=consumer, recording=small)
    assert arrivals(each_db) == []
    state = each.run(journal_ops.state(CONFIG_VARIABLE))
    assert state is not None
    assert state.dropped == 2


def test_only_keys_with_a_journal_are_journalled(each: Store, each_db: redis.Redis) -> None:
    for key in ("orders", "plain"):
        joined(each, "c", P, key=key)
        send(each, "a", key=key)
    assert sorted(key for key, _ in observe(each).messages) == [b"orders", b"plain"]
    assert arrivals(each_db) == [(b"a", b"c")]
    assert not each_db.exists(PLAIN.journal, PLAIN.state)


def test_without_journals_a_call_is_as_it_was() -> None:
    call = message_ops.observe("c", P, OPTIONS)
    assert record_deliveries(None, call, "c") is call


STRANGE: dict[bytes, bytes] = {
    b'{"payload":"eA==","id":"late"}': b"late",
    b' {"id" : "spaced"}': b"spaced",
    rb'{"id":"\u00fc\"q"}': 'ü"q'.encode(),
    b'{"id":"cut': b"",
    b'{"id":""}': b"",
    b'{"id":7}': b"",
    b'{"id":null}': b"",
    b'{"id":"' + b"x" * 161 + b'"}': b"",
    b'["id"]': b"",
    b"no JSON": b"",
    b"": b"",
    b"[" * 5000: b"",
    b'{"id":"last"}': b"last",
}


def test_messages_of_foreign_clients_are_journalled_by_their_ids_if_any(
    each: Store, each_db: redis.Redis
) -> None:
    joined(each, "c", P)
    send(each, "first")
    each.run(message_ops.push("orders", list(STRANGE)))
    each.run(message_ops.dispatch("orders"))
    assert observe(each).messages[0][1][1:] == list(STRANGE)
    ids = [id for id, _ in arrivals(each_db)]
    assert ids == [b"first", *(id for id in STRANGE.values() if id)]
    state = each.run(journal_ops.state(CONFIG_VARIABLE))
    assert state is not None
    assert state.dropped == 0


@pytest.mark.parametrize("broken", [CONFIG_VARIABLE.journal, CONFIG_VARIABLE.state])
def test_a_journal_of_another_type_keeps_nothing_back(
    each: Store, each_db: redis.Redis, broken: str
) -> None:
    joined(each, "c", P)
    send(each, "a", "b")
    each_db.delete(broken)
    each_db.set(broken, "x")
    assert len(observe(each, limit=1).messages[0][1]) == 1
    kept(each, "", "b1")
    assert kept(each, "b1", "b2").messages == []
    if broken == CONFIG_VARIABLE.journal:
        assert each_db.hget(CONFIG_VARIABLE.state, "dropped") == b"2"


def test_an_invalid_batch_is_dropped_with_a_journal_too(each: Store, each_db: redis.Redis) -> None:
    joined(each, "c", P)
    send(each, "a")
    # ["b1", ["orders", 7]] in MessagePack.
    each_db.set(keys.handed("c", P), b"\x92\xa2b1\x92\xa6orders\x07")
    assert len(kept(each, "b1", "b2").messages[0][1]) == 1


def test_a_failed_pop_is_not_journalled_as_delivered(each: Store, each_db: redis.Redis) -> None:
    for key in ("orders", "plain"):
        joined(each, "c", P, key=key)
        send(each, "a", key=key)
    each_db.delete(keys.messages("plain", "c", P))
    each_db.set(keys.messages("plain", "c", P), "no list")
    for turn in range(2):
        with pytest.raises(WrongType):
            observe(each, turn=turn)
    assert arrivals(each_db) == []


def test_names_of_any_kind_find_their_journals(each: Store, each_server: Server) -> None:
    name = "a_b %{1} ü*"
    recording = JournalPolicy("gomq", ("*",))
    joined(each, "c ü", P, key=name)
    send(each, "a", key=name, recording=recording)
    observe(each, consumer="c ü", recording=recording)
    with redis.Redis.from_url(each_server.url) as db:
        assert arrivals(db, JournalKeys("gomq", name)) == [(b"a", "c ü".encode())]


def test_a_consumer_counts_in_what_is_held_after_a_commit(
    each: Store, each_db: redis.Redis
) -> None:
    joined(each, "consumer", P)
    send(each, "a", "b")
    observe(each, consumer="consumer")
    found: Any = each_db.xrange(CONFIG_VARIABLE.journal)
    each.run(journal_ops.commit(CONFIG_VARIABLE, "etl", found[2][0].decode()))
    state = each.run(journal_ops.state(CONFIG_VARIABLE))
    assert state is not None
    assert (state.entries, state.bytes) == (2, 2 * (100 + len("consumer")))
