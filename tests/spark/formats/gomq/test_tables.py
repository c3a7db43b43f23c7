"""GOMQ's tables, without Spark: what is in Redis is in the rows."""

from __future__ import annotations

import os
import pickle
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from tambomq.clock import unix_date
from tambomq.errors import InvalidFormat, WrongType
from tambomq.gomq import wire
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as message_ops
from tambomq.ids import Xids
from tambomq.spark.core.table import ColumnBounds, Range, Table
from tambomq.spark.formats.gomq.dates import published_ms
from tambomq.spark.formats.gomq.tables import DedicatedQueueTable, MainQueueTable, SubscriptionTable
from tambomq.store.sync import Store

P, Q = "127.0.0.1:5467", "127.0.0.1:5468"
PUBLISHED = datetime(2017, 7, 18, 8, 15, 4, tzinfo=UTC)
# An id of that second, written out: names of tests hold it, and must be the same everywhere.
XID, DATE = "b5ms7212225djcq6pu30", "Tue Jul 18 10:15:04 CEST 2017"


def element(n: int = 0) -> bytes:
    return wire.encode(XID, DATE, b"%d" % n)


def rows(
    store: Store, table: Table, key: str, bounds: ColumnBounds | None = None, pieces: int = 1
) -> list[dict[str, Any]]:
    bounds = bounds or ColumnBounds()
    found = []
    for part in table.cut(store, key, bounds, pieces):
        for batch in table.read(store, part, bounds):
            assert batch.schema == table.columns.arrow
            found += batch.to_pylist()
    return found


# ── main queues ──────────────────────────────────────────────────────────────


def test_a_message_is_a_row(store: Store) -> None:
    store.run(message_ops.push("k", [element(7)]))
    assert rows(store, MainQueueTable(), "k") == [
        {
            "key": "k",
            "position": 0,
            "id": XID,
            "timestamp": DATE,
            "published_at": PUBLISHED,
            "payload": b"7",
            "error": None,
            "raw": None,
        }
    ]


def test_a_key_without_messages_has_no_rows(store: Store) -> None:
    assert rows(store, MainQueueTable(), "nobody") == []
    assert rows(store, DedicatedQueueTable(), "nobody") == []
    assert rows(store, SubscriptionTable(), "nobody") == []


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b'{"id": 5}', b'{"payload": "?"}', b"\xff"])
def test_an_element_that_is_not_a_message_keeps_its_bytes_and_has_an_error(
    store: Store, raw: bytes
) -> None:
    store.run(message_ops.push("k", [element(1), raw, element(2)]))
    first, wrong, last = rows(store, MainQueueTable(), "k")
    assert (first["payload"], last["payload"]) == (b"1", b"2")
    assert wrong["raw"] == raw
    assert wrong["error"].startswith("no message of GOMQ's: ")
    assert wrong["payload"] is wrong["id"] is wrong["timestamp"] is wrong["published_at"] is None
    assert wrong["position"] == 1


def test_empty_fields_are_left_out_and_no_error(store: Store) -> None:
    store.run(message_ops.push("k", [b"{}", wire.encode(XID, "", b"")]))
    first, second = rows(store, MainQueueTable(), "k")
    assert (first["id"], first["payload"], first["error"]) == (None, b"", None)
    assert (second["id"], second["payload"], second["error"]) == (XID, b"", None)


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_partitions_of_a_list_have_every_message_once_in_order(store: Store, pieces: int) -> None:
    count = 4321
    store.run(message_ops.push("k", [element(n) for n in range(count)]))
    parts = MainQueueTable().cut(store, "k", ColumnBounds(), pieces)
    assert len(parts) == min(pieces, 5)
    found = rows(store, MainQueueTable(), "k", pieces=pieces)
    assert [row["payload"] for row in found] == [b"%d" % n for n in range(count)]
    assert [row["position"] for row in found] == list(range(count))


def test_a_small_queue_is_one_piece(store: Store) -> None:
    store.run(message_ops.push("k", [element()] * 1000))
    assert MainQueueTable().cut(store, "k", ColumnBounds(), 100) == [Range("k", 0)]


def test_large_payloads_come_in_small_pages(store: Store) -> None:
    payload = os.urandom(3 << 20)
    store.run(message_ops.push("k", [wire.encode("", "", payload)] * 20))
    sizes = []
    for batch in MainQueueTable().read(store, Range("k", 0, 20), ColumnBounds()):
        sizes.append(batch.num_rows)
        assert batch.column("payload").to_pylist() == [payload] * batch.num_rows
    assert sizes == [4, *[1] * 16]


def test_a_list_that_shrinks_meanwhile_ends_the_read(store: Store, db: redis.Redis) -> None:
    store.run(message_ops.push("k", [element(n) for n in range(3000)]))
    reading = MainQueueTable().read(store, Range("k", 0, 3000), ColumnBounds())
    assert next(reading).num_rows > 0
    db.ltrim("QUEUE_k", 2990, -1)
    assert sum(batch.num_rows for batch in reading) <= 10


@pytest.mark.parametrize("count", [0, 10, 2500])
def test_messages_published_after_the_plan_are_read(store: Store, count: int) -> None:
    elements = [element(n) for n in range(count + 7)]
    if count:
        store.run(message_ops.push("k", elements[:count]))
    parts = MainQueueTable().cut(store, "k", ColumnBounds(), 2)
    store.run(message_ops.push("k", elements[count:]))
    batches = [b for part in parts for b in MainQueueTable().read(store, part, ColumnBounds())]
    assert sum(b.num_rows for b in batches) == count + 7


def test_each_table_lists_the_keys_that_it_has_rows_of(store: Store, db: redis.Redis) -> None:
    store.run(message_ops.push("a_b", [element()]))
    store.run(message_ops.subscribe("k", "c", P, Options()))
    db.set("QUEUE_text", "no list")
    assert list(MainQueueTable().names(store)) == ["a_b"]
    assert list(DedicatedQueueTable().names(store)) == ["k"]
    assert list(SubscriptionTable().names(store)) == ["k"]


# ── dedicated queues and subscriptions ───────────────────────────────────────


def subscribed(store: Store) -> None:
    for consumer, peer in (("c", P), ("c", Q), ("d", P)):
        store.run(message_ops.subscribe("k", consumer, peer, Options()))
    store.run(message_ops.push("k", [element(1), element(2)]))
    store.run(message_ops.dispatch("k"))
    store.run(message_ops.observe("c", Q, Options(), limit=1))


def test_each_message_that_waits_for_a_peer_is_a_row(store: Store) -> None:
    subscribed(store)
    found = [
        (r["consumer"], r["peer"], r["payload"]) for r in rows(store, DedicatedQueueTable(), "k")
    ]
    assert found == [
        ("c", P, b"1"),
        ("c", P, b"2"),
        ("c", Q, b"2"),
        ("d", P, b"1"),
        ("d", P, b"2"),
    ]
    assert rows(store, MainQueueTable(), "k") == []


def test_only_the_lists_that_are_wanted_are_read(store: Store) -> None:
    subscribed(store)
    bounds = ColumnBounds(only={"consumer": frozenset("c"), "peer": frozenset((P,))})
    found = [(r["consumer"], r["peer"]) for r in rows(store, DedicatedQueueTable(), "k", bounds)]
    assert found == [("c", P), ("c", P)]
    (only,) = rows(store, SubscriptionTable(), "k", bounds)
    assert (only["consumer"], only["peer"]) == ("c", P)


def test_subscribers_are_rows(store: Store, db: redis.Redis) -> None:
    subscribed(store)
    db.set(f"LASTACTION_{P}", 1_500_000_000)
    db.delete(f"LASTACTION_{Q}")
    db.sadd("CONSUMERS_k", "silent")
    found = [
        (r["consumer"], r["peer"], r["last_action_at"], r["waiting"])
        for r in rows(store, SubscriptionTable(), "k")
    ]
    seen = datetime.fromtimestamp(1_500_000_000, UTC)
    assert found == [
        ("c", P, seen, 2),
        ("c", Q, None, 1),
        ("d", P, seen, 2),
        ("silent", None, None, None),
    ]


def test_thousands_of_peers_are_all_found(store: Store, db: redis.Redis) -> None:
    db.sadd("SUBSCRIBED_KEYS", "QUEUE_k")
    db.sadd("CONSUMERS_k", "c")
    db.sadd("PEERS_c", *(f"p{n}" for n in range(2500)))
    db.rpush("MESSAGES_k_c_p7", element())
    assert len(rows(store, SubscriptionTable(), "k")) == 2500
    (only,) = rows(store, DedicatedQueueTable(), "k", pieces=4)
    assert only["peer"] == "p7"


# ── what is wrong ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("QUEUE_k", MainQueueTable()),
        ("CONSUMERS_k", DedicatedQueueTable()),
        ("PEERS_c", DedicatedQueueTable()),
        (f"MESSAGES_k_c_{P}", DedicatedQueueTable()),
        ("CONSUMERS_k", SubscriptionTable()),
        ("PEERS_c", SubscriptionTable()),
    ],
)
def test_a_key_of_another_type_is_named(
    store: Store, db: redis.Redis, name: str, table: Table
) -> None:
    subscribed(store)
    db.delete(name)
    db.set(name, "of another type")
    with pytest.raises(WrongType, match=name):
        rows(store, table, "k")


def test_a_subscriber_whose_keys_have_another_type_is_shown(store: Store, db: redis.Redis) -> None:
    subscribed(store)
    for name in (f"MESSAGES_k_c_{P}", f"LASTACTION_{P}"):
        db.delete(name)
        db.hset(name, "of another", "type")
    first, *_ = rows(store, SubscriptionTable(), "k")
    assert (first["peer"], first["waiting"], first["last_action_at"]) == (P, None, None)


@pytest.mark.parametrize("table", [MainQueueTable(), DedicatedQueueTable(), SubscriptionTable()])
def test_a_key_that_is_too_long_is_refused(store: Store, table: Table) -> None:
    with pytest.raises(InvalidFormat):
        rows(store, table, "x" * 20_000)


def test_reading_changes_nothing_and_tables_can_be_pickled(store: Store, db: redis.Redis) -> None:
    subscribed(store)
    store.run(message_ops.push("k", [element(3)]))
    before = {name: db.dump(name) for name in db.scan_iter()}
    for table in (MainQueueTable(), DedicatedQueueTable(), SubscriptionTable()):
        again: Any = pickle.loads(pickle.dumps(table))  # noqa: S301  (our own)
        assert rows(store, again, "k")
    assert {name: db.dump(name) for name in db.scan_iter()} == before


# ── when it was published ────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "id", "expected"),
    [
        ("Tue Jul 18 08:15:04 UTC 2017", "", PUBLISHED),
        ("Tue Jul 18 10:15:04 +02 2017", "", PUBLISHED),
        ("Tue Jul 18 05:45:04 -0230 2017", "", PUBLISHED),
        (DATE, XID, PUBLISHED),
        ("Tue Jul 18 03:15:04 CST 2017", XID, PUBLISHED),
        ("Sat Jan  1 00:00:00 UTC 2000", "", datetime(2000, 1, 1, tzinfo=UTC)),
        ("Sat Jan 1 00:00:00 UTC 2000", "", datetime(2000, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_date_becomes_a_time(text: str, id: str, expected: datetime) -> None:
    assert published_ms(text, id) == expected.timestamp() * 1000


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("", XID),
        (DATE, ""),
        (DATE, XID.upper()),
        (DATE, f" {XID[1:]}"),
        ("Tue Jul 18 10:15:04 CEST 2010", XID),
        ("Tue Foo 18 10:15:04 UTC 2017", XID),
        ("Tue Feb 30 10:15:04 UTC 2017", XID),
        ("2017-07-18", XID),
    ],
)
def test_an_unreadable_date_is_none(text: str, id: str) -> None:
    assert published_ms(text, id) is None


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Sao_Paulo", "UTC", "Europe/Berlin"])
def test_timestamps_of_our_servers_are_read_in_any_time_zone(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        now = int(time.time())
        found = published_ms(unix_date(now), Xids().next(now))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == now * 1000
