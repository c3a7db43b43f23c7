"""ChasquiMQ's tables, planned and read as Spark's workers do it, without Spark."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.job import BackoffSpec, Envelope, RetryOverride
from tambomq.chasqui.wire.envelope import encode_envelope
from tambomq.errors import WrongType
from tambomq.spark.core.table import ColumnBounds, Range, Table
from tambomq.spark.formats.chasqui.columns import NO_ENVELOPE
from tambomq.spark.formats.chasqui.streams import PendingTable, StreamTable
from tambomq.spark.formats.chasqui.zsets import ResultTable, SortedSetTable
from tambomq.store.sync import Store
from tests.servers import Server
from tests.spark.chasqui_filling import KEYS, NOW, at, dump, envelope, fill, put, rows

ALL: list[Table] = [
    *(StreamTable(kind) for kind in ("jobs", "dlq", "events")),
    *(SortedSetTable("delayed"), SortedSetTable("repeat"), ResultTable(), PendingTable()),
]
each_table = pytest.mark.parametrize("table", ALL, ids=lambda table: getattr(table, "kind", ""))


# ── any of them ──────────────────────────────────────────────────────────────


@each_table
def test_an_unused_queue_has_no_rows(table: Table, store: Store) -> None:
    assert rows(table, store) == []


@each_table
def test_rows_have_the_columns_that_were_announced(
    table: Table, store: Store, db: redis.Redis
) -> None:
    fill(db)
    partition_count = table.cut(store, "mail", ColumnBounds(), 2)
    batches = [
        batch for part in partition_count for batch in table.read(store, part, ColumnBounds())
    ]
    assert batches
    assert all(batch.schema.equals(table.columns.arrow) for batch in batches)
    assert set(pa.Table.from_batches(batches).column("queue").to_pylist()) == {"mail"}


@pytest.mark.parametrize("table", ALL[:5], ids=lambda table: table.kind)
def test_a_key_of_another_type_is_an_error(table: Table, store: Store, db: redis.Redis) -> None:
    for key in (KEYS.stream, KEYS.dlq, KEYS.events, KEYS.delayed, KEYS.repeat):
        db.set(key, "x")
    with pytest.raises(WrongType, match="mail"):
        rows(table, store)


@each_table
def test_reading_changes_nothing(table: Table, store: Store, db: redis.Redis) -> None:
    fill(db)
    before = dump(db)
    rows(table, store)
    assert dump(db) == before


# ── jobs ─────────────────────────────────────────────────────────────────────


def test_a_job_is_shown_with_all_that_is_known(store: Store, db: redis.Redis) -> None:
    retry = RetryOverride(9, BackoffSpec.fixed(250))
    db.xadd(KEYS.stream, {"d": envelope("a", 2, retry), "n": "welcome"}, id=f"{NOW + 5}-3")
    assert rows(StreamTable("jobs"), store) == [
        {
            "queue": "mail",
            "entry_id": f"{NOW + 5}-3",
            "id": "a",
            "name": "welcome",
            "payload": b"\x01",
            "created_at": at(NOW),
            "attempt": 2,
            "max_attempts": 9,
            "backoff": '{"kind":"fixed","delay_ms":250}',
            "enqueued_at": at(NOW + 5),
            "error": None,
            "raw": None,
        }
    ]


def test_a_real_producers_jobs_are_read(server: Server, store: Store) -> None:
    with BlockingQueue("mail", redis_url=server.url) as queue:
        ids = [job.id for job in queue.add_bulk([{"name": "n", "data": x} for x in range(5)])]
    assert [row["id"] for row in rows(StreamTable("jobs"), store)] == ids


def test_entries_that_cannot_be_read_keep_their_bytes(store: Store, db: redis.Redis) -> None:
    db.xadd(KEYS.stream, {"d": b"\xc1", "n": b"\xff"}, id="1-0")
    db.xadd(KEYS.stream, {"d": envelope()}, id="2-0")
    db.xadd(KEYS.stream, {"other": "x"}, id="3-0")
    damaged, sound, empty = rows(StreamTable("jobs"), store)
    assert (damaged["id"], damaged["name"], damaged["raw"]) == (None, "", b"\xc1")
    assert "MessagePack" in damaged["error"]
    assert (sound["id"], sound["error"], sound["raw"]) == ("a", None, None)
    assert (empty["error"], empty["raw"]) == (NO_ENVELOPE, b"\x92\xc4\x05other\xc4\x01x")


def test_entries_that_cannot_be_read_may_be_skipped_and_are_counted(
    store: Store, db: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    put(db, 3)
    db.xadd(KEYS.stream, {"d": b"\xc1"})
    db.xadd(KEYS.stream, {"d": b"\xc1"})
    with caplog.at_level(logging.WARNING):
        assert len(rows(StreamTable("jobs", show_damaged=False), store)) == 3
    assert "2 rows of jobs of queue 'mail'" in caplog.text


def test_numbers_and_times_that_no_column_holds_are_null(store: Store, db: redis.Redis) -> None:
    far = encode_envelope(Envelope("far", b"", 2**64 - 1))
    db.xadd(KEYS.stream, {"d": envelope()}, id="1-0")
    db.xadd(KEYS.stream, {"d": far}, id=f"{2**64 - 1}-0")
    near, odd = rows(StreamTable("jobs"), store)
    assert (near["created_at"], near["enqueued_at"]) == (at(NOW), at(1))
    assert (odd["id"], odd["created_at"], odd["enqueued_at"]) == ("far", None, None)


def test_every_entry_is_in_one_piece(store: Store, db: redis.Redis) -> None:
    put(db, 5000, every_ms=7)
    table = StreamTable("jobs")
    partition_count = table.cut(store, "mail", ColumnBounds(), 4)
    sizes = [sum(map(len, table.read(store, part, ColumnBounds()))) for part in partition_count]
    assert len(sizes) == 4
    assert sum(sizes) == 5000
    assert max(sizes) < 1700
    assert [row["id"] for row in rows(table, store)] == [str(place) for place in range(5000)]


def test_a_long_stream_and_a_short_one_are_both_cut_to_measure(
    store: Store, db: redis.Redis
) -> None:
    put(db, 900)
    assert len(StreamTable("jobs").cut(store, "mail", ColumnBounds(), 8)) == 1
    put(db, 3000, first=NOW + 3_600_000)
    assert len(StreamTable("jobs").cut(store, "mail", ColumnBounds(), 8)) == 8


@pytest.mark.parametrize("before", [0, 10, 3000])
def test_entries_added_after_the_plan_are_read_too(
    before: int, store: Store, db: redis.Redis
) -> None:
    put(db, before)
    table = StreamTable("jobs")
    partition_count = table.cut(store, "mail", ColumnBounds(), 4)
    put(db, 10, first=NOW + 100_000)
    found = [batch for part in partition_count for batch in table.read(store, part, ColumnBounds())]
    assert sum(map(len, found)) == before + 10


def test_ranges_may_be_open_as_tails_are(store: Store, db: redis.Redis) -> None:
    put(db, 10)
    table = StreamTable("jobs")
    assert (table.first(store, "mail"), table.last(store, "mail")) == (f"{NOW}-0", f"{NOW + 9}-0")
    for low, count in (("-", 9), (f"({NOW + 3}-0", 5)):
        asked = Range("mail", low, f"{NOW + 8}-0")
        assert sum(map(len, table.read(store, asked, ColumnBounds()))) == count


def test_long_bodies_come_a_few_at_a_time(store: Store, db: redis.Redis) -> None:
    body = encode_envelope(Envelope("a", bytes(1 << 20), NOW))
    for _ in range(40):
        db.xadd(KEYS.stream, {"d": body})
    table = StreamTable("jobs")
    [part] = table.cut(store, "mail", ColumnBounds(), 4)
    sizes = [len(batch) for batch in table.read(store, part, ColumnBounds())]
    assert sum(sizes) == 40
    assert max(sizes[1:]) <= 4


# ── filters ──────────────────────────────────────────────────────────────────


def selector(store: Store, **limits: dict[str, Any]) -> list[str]:
    return [row["id"] for row in rows(StreamTable("jobs"), store, ColumnBounds(**limits))]


def test_times_become_ranges_of_ids(store: Store, db: redis.Redis) -> None:
    put(db, 10)
    assert selector(store, lowest={"enqueued_at": NOW + 7}) == ["7", "8", "9"]
    assert selector(store, highest={"enqueued_at": NOW + 1}) == ["0", "1"]
    assert selector(store, lowest={"enqueued_at": NOW + 99}) == []
    assert selector(store, highest={"enqueued_at": -5}) == []
    assert selector(store, lowest={"enqueued_at": 10**30}) == []
    assert len(selector(store, lowest={"enqueued_at": -(10**30)})) == 10


def test_one_id_is_read_alone(store: Store, db: redis.Redis) -> None:
    put(db, 10)
    for id, found in ((f"{NOW + 4}-0", ["4"]), (f"{NOW + 4}", []), ("x", []), (f"0{NOW}-0", [])):
        asked = frozenset((id,))
        assert selector(store, only={"entry_id": asked}) == found


def test_ids_are_compared_as_texts_as_spark_does(store: Store, db: redis.Redis) -> None:
    for id in ("7-0", "7-2", "7-10", "8-0"):
        db.xadd(KEYS.stream, {"d": envelope(id)}, id=id)
    # "7-10" comes before "7-2": nothing of that millisecond may be left out.
    assert selector(store, lowest={"entry_id": "7-2"}) == ["7-0", "7-2", "7-10", "8-0"]
    assert selector(store, lowest={"entry_id": "8"}) == ["8-0"]
    assert selector(store, highest={"entry_id": "7-2"}) == ["7-0", "7-2", "7-10"]
    db.xadd(KEYS.stream, {"d": envelope("10-0")}, id="10-0")
    assert len(selector(store, lowest={"entry_id": "8"})) == 5
    assert len(selector(store, highest={"entry_id": "zebra"})) == 5


def test_only_jobs_of_a_name_are_shown(store: Store, db: redis.Redis) -> None:
    put(db, 6)
    assert selector(store, only={"name": frozenset(("kind-1",))}) == ["1", "3", "5"]
    assert selector(store, only={"name": frozenset(("other",))}) == []


# ── dead letters and events ──────────────────────────────────────────────────


def test_a_dead_letter_says_why(store: Store, db: redis.Redis) -> None:
    fields: Any = {"d": envelope("a", 3), "n": "welcome", "source_id": "7-1"}
    db.xadd(KEYS.dlq, {**fields, "reason": "unrecoverable", "detail": "no"}, id=f"{NOW}-0")
    db.xadd(KEYS.dlq, {"d": b"\xff\xff", "source_id": "8-0", "reason": "decode_failed"})
    dead, odd = rows(StreamTable("dlq"), store)
    assert (dead["dlq_id"], dead["source_id"], dead["died_at"]) == (f"{NOW}-0", "7-1", at(NOW))
    assert (dead["reason"], dead["detail"], dead["name"]) == ("unrecoverable", "no", "welcome")
    assert (dead["id"], dead["attempt"], dead["payload"], dead["error"]) == ("a", 3, b"\x01", None)
    assert (odd["id"], odd["raw"], odd["detail"]) == (None, b"\xff\xff", None)
    assert odd["error"]


def test_an_events_fields_have_columns(store: Store, db: redis.Redis) -> None:
    fields: Any = {"e": "completed", "id": "a", "ts": NOW, "n": "welcome", "attempt": 1}
    db.xadd(KEYS.events, {**fields, "duration_us": 1500}, id=f"{NOW + 1}-0")
    [row] = rows(StreamTable("events"), store)
    assert {name: value for name, value in row.items() if value is not None} == {
        "queue": "mail",
        "entry_id": f"{NOW + 1}-0",
        "event": "completed",
        "id": "a",
        "name": "welcome",
        "ts": at(NOW),
        "attempt": 1,
        "duration_us": 1500,
        "recorded_at": at(NOW + 1),
    }


def test_fields_without_a_column_are_kept_as_json(store: Store, db: redis.Redis) -> None:
    db.xadd(KEYS.events, {"e": "drained", "id": "", "ts": "soon", "attempt": 2})
    db.xadd(KEYS.events, {"e": "new", "id": "b", "ts": 5, "attempt": "9" * 30, "shoe": b"\xff"})
    first, second = rows(StreamTable("events"), store)
    assert (first["id"], first["ts"], first["attempt"]) == (None, None, 2)
    assert (first["others"], second["ts"]) == ('{"ts":"soon"}', at(5))
    assert second["others"] == f'{{"attempt":"{"9" * 30}","shoe":"\N{REPLACEMENT CHARACTER}"}}'


def test_of_repeated_fields_the_first_counts(store: Store, db: redis.Redis) -> None:
    add = "return redis.call('XADD', KEYS[1], '*', unpack(ARGV))"
    db.eval(add, 1, KEYS.events, "e", "one", "ts", "1", "e", "two")
    db.eval(add, 1, KEYS.stream, "n", "a", "d", envelope(), "n", "b")
    assert rows(StreamTable("events"), store)[0]["event"] == "one"
    assert rows(StreamTable("jobs"), store)[0]["name"] == "a"
