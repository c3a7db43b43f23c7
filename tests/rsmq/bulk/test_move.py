"""Messages that leave a queue for another: its journal, if any, records it in the same step."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.bulk import moves
from tambomq.bulk.moves import MoveBatch, Tally
from tambomq.journal import ops as journal_ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds, JournalPolicy
from tambomq.rsmq import Rsmq
from tambomq.rsmq.bulk import move as move_ops
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops.journal import journal_keys, policy_for_queue
from tambomq.store.sync import Store
from tests.journal.looking import state
from tests.servers import Server
from tests.servers.cluster import Cluster

JOURNAL = JournalKeys("rsmq", "a")


def take(
    store: Store,
    keys: Keys | None = None,
    *,
    later: bool = False,
    journal: JournalPolicy | None = None,
) -> MoveBatch:
    call = move_ops.take(keys or Keys(), "a", "m", "run", skip=0, later=later, journal=journal)
    return store.run(call)


def moved(db: redis.Redis, journal: JournalKeys = JOURNAL) -> list[str]:
    """Return the ids of the messages that the journal reports as moved."""
    found: Any = db.xrange(journal.journal)
    entries = [fields for _, fields in found if fields[b"e"] == b"moved"]
    assert all(list(each) == [b"o", b"e", b"id", b"ts"] for each in entries)
    return [each[b"id"].decode() for each in entries]


def sent(url: str, count: int = 2, **options: Any) -> list[str]:
    """Send some to a new queue; return their ids."""
    with Rsmq(url, **options) as client:
        client.create_queue("a")
        return client.send_messages("a", [b"body"] * count)


def test_a_departure_is_recorded_once(
    each: Store, each_db: redis.Redis, each_server: Server
) -> None:
    ids = sent(each_server.url, journal=("a",))
    before: Any = each_db.time()
    batch = take(each)
    assert [move_ops.decode_outbound(row).id for row in batch.rows] == ids
    assert moved(each_db) == ids
    # Whoever comes after one that was killed finds them in transit.
    assert take(each) == batch
    each.run(moves.arrived(Keys().move("a", "m"), Keys().transit("a", "m"), 1, Tally()))
    assert take(each).rows == []
    assert moved(each_db) == ids
    last: Any = each_db.xrevrange(JOURNAL.journal, count=1)
    assert before[0] * 1000 <= int(last[0][1][b"ts"])
    held = state(each_server.url, "rsmq", "a")
    assert held is not None
    assert (held.entries, held.bytes, held.dropped) == (4, 408, 0)


def test_departures_of_delayed_messages_are_recorded(
    store: Store, db: redis.Redis, server: Server
) -> None:
    with Rsmq(server.url, journal=("a",)) as client:
        client.create_queue("a")
        id = client.send_message("a", b"late", delay=600)
    assert take(store).rows == []
    assert moved(db) == []
    take(store, later=True)
    assert moved(db) == [id]


def test_a_namespace_has_journals_of_its_own(store: Store, db: redis.Redis, server: Server) -> None:
    ids = sent(server.url, ns="x", journal=("a",))
    take(store, Keys("x"))
    assert moved(db, journal_keys("x", "a")) == ids


def test_a_queue_without_a_journal_gets_none(store: Store, db: redis.Redis, server: Server) -> None:
    sent(server.url)
    assert len(take(store).rows) == 2
    assert list(db.scan_iter("{tambo:*")) == []


def test_a_full_journal_blocks_no_move_and_counts(
    store: Store, db: redis.Redis, server: Server
) -> None:
    ids = sent(server.url, 5, journal=("a",))
    bounds = JournalBounds(max_entries=7)
    assert len(take(store, journal=policy_for_queue("rsmq", "a", bounds)).rows) == 5
    assert moved(db) == ids[:2]
    held = state(server.url, "rsmq", "a")
    assert held is not None
    assert (held.entries, held.refused, held.dropped) == (7, 0, 3)


@pytest.mark.parametrize("broken", [JOURNAL.journal, JOURNAL.state])
def test_a_journal_of_another_type_blocks_no_move(
    each: Store, each_db: redis.Redis, each_server: Server, broken: str
) -> None:
    sent(each_server.url, journal=("a",))
    each_db.delete(broken)
    each_db.set(broken, "x")
    assert len(take(each).rows) == 2
    assert each_db.zcard("rsmq:a") == 0
    if broken == JOURNAL.journal:
        assert each_db.hget(JOURNAL.state, "dropped") == b"2"


def test_a_cluster_records_nothing_and_no_move_fails(cluster: Cluster) -> None:
    keys = Keys("{n}")
    journal = journal_keys(keys.ns, "a")
    url = cluster.nodes[0].url
    sent(url, ns=keys.ns)
    store = Store(url)
    try:
        store.run(journal_ops.append_bounded(journal, DEFAULT_BOUNDS, [(1, b"x")]))
        assert len(take(store, keys).rows) == 2
        assert len(store.run(journal_ops.read(journal))) == 1
    finally:
        store.close()
