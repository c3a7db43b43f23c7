"""Messages that leave a main queue for another: the key's journal, if any, records it too."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.bulk import moves
from tambomq.bulk.moves import MoveBatch, Tally
from tambomq.gomq import keys, wire
from tambomq.gomq.bulk import move as move_ops
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.journal import push_recorded
from tambomq.journal import ops as journal_ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds, JournalPolicy
from tambomq.store.sync import Store
from tests.servers.cluster import Cluster

JOURNAL = JournalKeys("gomq", "a")


def send(store: Store, *ids: str, journal: bool = True) -> list[bytes]:
    elements = [wire.encode(id, "today", b"x") for id in ids]
    recording = JournalPolicy("gomq", ("a",) if journal else ())
    store.run(push_recorded(recording, {"a": elements}))
    return elements


def take(store: Store, bounds: JournalBounds = DEFAULT_BOUNDS) -> MoveBatch:
    return store.run(move_ops.take("a", "m", "run", JournalPolicy("gomq", ("a",), bounds)))


def moved(db: redis.Redis) -> list[bytes]:
    """Return the ids of the messages that the journal reports as moved."""
    found: Any = db.xrange(JOURNAL.journal)
    entries = [fields for _, fields in found if fields[b"e"] == b"moved"]
    assert all(list(each) == [b"o", b"e", b"id", b"ts"] for each in entries)
    return [each[b"id"] for each in entries]


def held(store: Store) -> journal_ops.State:
    found = store.run(journal_ops.state(JOURNAL))
    assert found is not None
    return found


def test_a_departure_is_recorded_once(each: Store, each_db: redis.Redis) -> None:
    elements = send(each, "one", "two")
    batch = take(each)
    assert [element for _, element in batch.rows] == elements
    assert moved(each_db) == [b"one", b"two"]
    # Whoever comes after one that was killed finds them in transit.
    assert take(each) == batch
    each.run(moves.arrived(keys.move("a", "m"), keys.transit("a", "m"), 1, Tally()))
    assert take(each).rows == []
    assert moved(each_db) == [b"one", b"two"]
    assert (held(each).entries, held(each).bytes) == (4, 402)


def test_dispatched_messages_stay_and_are_not_recorded(store: Store, db: redis.Redis) -> None:
    store.run(message_ops.subscribe("a", "c", "127.0.0.1:5467", Options()))
    send(store, "one")
    store.run(message_ops.dispatch("a"))
    assert take(store).rows == []
    assert moved(db) == []


def test_messages_without_an_id_leave_unrecorded(each: Store, each_db: redis.Redis) -> None:
    send(each, "one")
    each_db.rpush(keys.queue("a"), b"junk", b'{"x":1,"id":"odd"}', b'{"id":7}', b"[]")
    assert len(take(each).rows) == 5
    assert moved(each_db) == [b"one", b"odd"]
    assert held(each).dropped == 0


def test_a_key_without_a_journal_gets_none(store: Store, db: redis.Redis) -> None:
    send(store, "one", journal=False)
    assert len(take(store).rows) == 1
    assert list(db.scan_iter("{tambo:*")) == []


def test_a_full_journal_blocks_no_move_and_counts(store: Store, db: redis.Redis) -> None:
    send(store, "one", "two", "three")
    assert len(take(store, JournalBounds(max_entries=4)).rows) == 3
    assert moved(db) == [b"one"]
    assert (held(store).refused, held(store).dropped) == (0, 2)


@pytest.mark.parametrize("broken", [JOURNAL.journal, JOURNAL.state])
def test_a_journal_of_another_type_blocks_no_move(
    each: Store, each_db: redis.Redis, broken: str
) -> None:
    send(each, "one", "two")
    each_db.delete(broken)
    each_db.set(broken, "x")
    assert len(take(each).rows) == 2
    assert each_db.llen(keys.queue("a")) == 0
    if broken == JOURNAL.journal:
        assert each_db.hget(JOURNAL.state, "dropped") == b"2"


def test_a_cluster_records_nothing_and_no_move_fails(cluster: Cluster) -> None:
    # Only a key with a tag has all that a move needs in one slot.
    key = "{a}"
    journal = JournalKeys("gomq", key)
    store = Store(cluster.nodes[0].url)
    try:
        store.run(journal_ops.append_bounded(journal, DEFAULT_BOUNDS, [(1, b"x")]))
        element = wire.encode("one", "today", b"x")
        store.run(move_ops.put(key, "q", 1, "", [move_ops.InboundRecord("one", element)]))
        assert len(store.run(move_ops.take(key, "m", "run")).rows) == 1
        assert len(store.run(journal_ops.read(journal))) == 1
    finally:
        store.close()
