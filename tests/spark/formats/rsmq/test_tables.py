"""RSMQ's tables, without Spark: what is in Redis is in the rows, whatever happens meanwhile."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tambomq.errors import InvalidFormat, QueueNotFound, WrongType
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tambomq.spark.core.table import ColumnBounds, Range, Table
from tambomq.spark.formats.rsmq.tables import MessageTable, QueueTable
from tambomq.store.call import Call, Outcome
from tambomq.store.sync import Store

MESSAGES, QUEUES = MessageTable(Keys()), QueueTable(Keys())
VISIBLE = ColumnBounds(only={"state": frozenset(("visible",))})


@pytest.fixture
def queue(rsmq: Rsmq) -> Rsmq:
    rsmq.create_queue("q", maxsize=-1)
    return rsmq


def rows(
    store: Store, table: Table = MESSAGES, bounds: ColumnBounds | None = None, pieces: int = 1
) -> list[dict[str, Any]]:
    bounds = bounds or ColumnBounds()
    found = []
    for part in table.cut(store, "q", bounds, pieces):
        for batch in table.read(store, part, bounds):
            assert batch.schema == table.columns.arrow
            found += batch.to_pylist()
    return found


def put(db: redis.Redis, scores: Mapping[str, float]) -> None:
    """Store messages of these ids, each with its id as its body."""
    db.zadd("rsmq:q", dict(scores))
    db.hset("rsmq:q:Q", mapping={id: id for id in scores})


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in found]


# ── what a row says ──────────────────────────────────────────────────────────


def test_a_message_is_a_row(store: Store, queue: Rsmq) -> None:
    sent = queue.send_message("q", b"\x00\xff")
    (row,) = rows(store)
    assert (row["queue"], row["id"], row["body"], row["rc"]) == ("q", sent, b"\x00\xff", 0)
    assert row["state"] == "visible"
    assert row["first_received_at"] is None
    assert abs(row["sent_at"] - datetime.now(UTC)) < timedelta(minutes=1)
    assert abs(row["visible_at"] - row["sent_at"]) < timedelta(seconds=1)


def test_states_are_distinguished(store: Store, queue: Rsmq) -> None:
    queue.send_message("q", "hidden")
    received = queue.receive_message("q", vt=60)
    assert received is not None
    queue.send_message("q", "delayed", delay=30)
    queue.send_message("q", "visible")
    found = {row["body"]: row for row in rows(store)}
    assert {body: row["state"] for body, row in found.items()} == {
        b"visible": "visible",
        b"hidden": "hidden",
        b"delayed": "delayed",
    }
    assert found[b"hidden"]["rc"] == 1
    assert found[b"hidden"]["first_received_at"] is not None
    assert [row["body"] for row in rows(store, bounds=VISIBLE)] == [b"visible"]


@pytest.mark.parametrize("every", [1, 2, 30, 100])
def test_each_row_has_its_own_receive_count(
    store: Store, queue: Rsmq, db: redis.Redis, every: int
) -> None:
    put(db, {f"{n:03}": n for n in range(90)})
    received = {f"{n:03}": n for n in range(10, 90, every)}
    for id, n in received.items():
        db.hset("rsmq:q:Q", mapping={f"{id}:rc": n, f"{id}:fr": 1000 + n})
    found = rows(store)
    assert ids(found) == [f"{n:03}" for n in range(90)]
    counts = {row["id"]: row["rc"] for row in found if row["rc"]}
    assert counts == received
    firsts = {row["id"]: row["first_received_at"] for row in found if row["first_received_at"]}
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert firsts == {id: epoch + timedelta(milliseconds=1000 + n) for id, n in received.items()}


def test_times_of_first_receive_are_asked_for_only_where_messages_were_received(
    store: Store, queue: Rsmq, db: redis.Redis
) -> None:
    put(db, {f"{n:04}": n for n in range(3000)})
    asked = Counter[str]()

    class Counting(Store):
        def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
            for call in calls:
                asked["first receives"] += (call.packed or b"").count(b":fr\r\n")
                asked["counts"] += (call.packed or b"").count(b":rc\r\n")
            return super().outcomes(calls)

    counting = Counting(store.endpoint)
    assert len(rows(counting)) == 3000
    assert asked == {"first receives": 0, "counts": 3000}
    db.hset("rsmq:q:Q", mapping={"2999:rc": 1, "2999:fr": 1})
    assert rows(counting)[-1]["rc"] == 1
    assert 1 <= asked["first receives"] <= 1000
    counting.close()


def test_messages_that_become_visible_after_the_plan_are_read(
    store: Store, queue: Rsmq, db: redis.Redis
) -> None:
    put(db, {"later": 2**52})
    (part,) = MESSAGES.cut(store, "q", VISIBLE, 1)
    put(db, {"later": 1})
    assert [b.num_rows for b in MESSAGES.read(store, part, VISIBLE)] == [1]


def test_a_queue_is_a_row(store: Store, queue: Rsmq) -> None:
    queue.set_queue_attributes("q", vt=7, delay=2)
    queue.send_messages("q", ["a", "b"])
    (row,) = rows(store, QUEUES)
    assert (row["queue"], row["vt_s"], row["delay_s"], row["maxsize"]) == ("q", 7.0, 2.0, -1)
    assert (row["total_sent"], row["messages"], row["hidden_messages"]) == (2, 2, 2)
    assert abs(row["created_at"] - datetime.now(UTC)) < timedelta(minutes=1)


# ── ranges and pages ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_partitions_of_a_queue_have_every_message_once(
    store: Store, queue: Rsmq, db: redis.Redis, pieces: int
) -> None:
    expected = {f"{n:05}": n // 7 for n in range(4321)}
    put(db, expected)
    assert len(MESSAGES.cut(store, "q", ColumnBounds(), pieces)) == pieces
    assert ids(rows(store, pieces=pieces)) == sorted(expected)


def test_pieces_are_about_as_large_whatever_the_times(
    store: Store, queue: Rsmq, db: redis.Redis
) -> None:
    put(db, {f"{n:05}": n if n < 4900 else n * 1_000_000 for n in range(5000)})
    partition_count = MESSAGES.cut(store, "q", ColumnBounds(), 5)
    sizes = [
        sum(b.num_rows for b in MESSAGES.read(store, part, ColumnBounds()))
        for part in partition_count
    ]
    assert sizes == [1000] * 5


@pytest.mark.parametrize("count", [0, 10, 2500])
def test_messages_sent_after_the_plan_are_read(store: Store, queue: Rsmq, count: int) -> None:
    queue.send_messages("q", ["x"] * count)
    partition_count = MESSAGES.cut(store, "q", ColumnBounds(), 2)
    queue.send_messages("q", ["x"] * 7)
    batches = [b for part in partition_count for b in MESSAGES.read(store, part, ColumnBounds())]
    assert sum(b.num_rows for b in batches) == count + 7


def test_a_small_queue_is_one_piece(store: Store, queue: Rsmq, db: redis.Redis) -> None:
    put(db, {f"{n:05}": n for n in range(1000)})
    assert MESSAGES.cut(store, "q", ColumnBounds(), 100) == [Range("q", "-inf", "+inf")]


@pytest.mark.parametrize("score", [5.0, 2.5, -1.5, float("inf"), float("-inf"), 2.0**60])
def test_thousands_of_equal_scores_are_read_once_each(
    store: Store, queue: Rsmq, db: redis.Redis, score: float
) -> None:
    expected = {f"{n:05}": score for n in range(3500)} | {"first": -1e300, "last": 1e300}
    put(db, expected)
    found = ids(rows(store, pieces=4))
    assert len(found) == len(expected)
    assert set(found) == set(expected)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    scores=st.lists(st.integers(0, 3) | st.floats(-3, 3), max_size=40),
    pieces=st.integers(1, 5),
)
def test_any_scores_are_read_once_each(
    store: Store, queue: Rsmq, db: redis.Redis, scores: list[float], pieces: int
) -> None:
    db.delete("rsmq:q")
    # Large enough for several pages, in groups of equal scores.
    expected = {f"{n:03}-{k:03}": at for n, at in enumerate(scores) for k in range(120)}
    if expected:
        put(db, expected)
    assert sorted(ids(rows(store, pieces=pieces))) == sorted(expected)


def test_remaining_messages_are_read_while_others_are_deleted(
    store: Store, queue: Rsmq, db: redis.Redis
) -> None:
    expected = [f"{n:05}" for n in range(6000)]
    put(db, dict.fromkeys(expected, 5.0))
    found, deleted = [], set[str]()
    for batch in MESSAGES.read(store, Range("q", "-inf", "+inf"), ColumnBounds()):
        found += batch.column("id").to_pylist()
        # A consumer receives the first ones, which are those that were read already.
        going = [id for id in expected if id not in deleted][:300] if len(deleted) < 3000 else []
        deleted.update(going)
        if going:
            db.zadd("rsmq:q", dict.fromkeys(going, 1e15))
    times = Counter(found)
    assert len(deleted) < len(expected)
    assert all(times[id] == 1 for id in expected if id not in deleted)


def test_deleted_messages_have_no_row_and_those_without_a_body_do(
    store: Store, queue: Rsmq, db: redis.Redis
) -> None:
    put(db, {f"{n:05}": n for n in range(40)})
    db.hdel("rsmq:q:Q", "00030")
    reading = MESSAGES.read(store, Range("q", "-inf", "+inf"), ColumnBounds())
    assert next(reading).num_rows == 4
    db.zrem("rsmq:q", "00020")
    db.hdel("rsmq:q:Q", "00020")
    rest = [row for batch in reading for row in batch.to_pylist()]
    assert len(rest) == 35
    assert [row["id"] for row in rest if row["body"] is None] == ["00030"]


def test_large_bodies_come_in_small_pages(store: Store, queue: Rsmq, db: redis.Redis) -> None:
    body = os.urandom(2 << 20)
    put(db, {f"{n:05}": n for n in range(20)})
    db.hset("rsmq:q:Q", mapping={f"{n:05}": body for n in range(20)})
    sizes = [b.num_rows for b in MESSAGES.read(store, Range("q", "-inf", "+inf"), ColumnBounds())]
    assert sizes == [4, *[2] * 8]


# ── filters ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (20, 20, "bc"),
        (21, 40, "cd"),
        (-20, -20, "e"),
        (11, 15, ""),
        (None, 10, "ea"),
        (30, None, "d"),
    ],
)
def test_little_more_is_read_than_what_a_range_of_times_allows(
    store: Store, queue: Rsmq, db: redis.Redis, low: int | None, high: int | None, found: str
) -> None:
    # A fraction of a millisecond does not show, so it may be read for either.
    put(db, {"a": 10, "b": 20, "c": 20.5, "d": 30, "e": -20.5})
    lowest = {} if low is None else {"visible_at": low}
    highest = {} if high is None else {"visible_at": high}
    assert "".join(ids(rows(store, bounds=ColumnBounds(lowest, highest)))) == found


# ── names and damage ─────────────────────────────────────────────────────────


def test_names_that_no_queue_can_have_are_left_out(
    store: Store, queue: Rsmq, db: redis.Redis
) -> None:
    db.sadd("rsmq:QUEUES", b"\xff", "two words", "")
    assert list(MESSAGES.names(store)) == ["q"]
    assert list(QUEUES.names(store)) == ["q"]


@pytest.mark.parametrize("table", [MESSAGES, QUEUES])
def test_an_unknown_queue_is_an_error(store: Store, table: Table) -> None:
    with pytest.raises(QueueNotFound):
        table.cut(store, "unknown", ColumnBounds(), 2)
    with pytest.raises(InvalidFormat):
        table.cut(store, "no name", ColumnBounds(), 2)


def test_an_empty_queue_has_no_messages(store: Store, queue: Rsmq) -> None:
    assert rows(store) == []
    assert len(rows(store, QUEUES)) == 1


def test_damaged_fields_are_null_or_nothing(store: Store, queue: Rsmq, db: redis.Redis) -> None:
    put(db, {"not an id \udcff".encode(errors="replace").decode(): 1, "b": 2, "c": 1e300})
    db.hset(
        "rsmq:q:Q",
        mapping={"b:rc": "many", "b:fr": "never", "c:rc": "9" * 30, "c:fr": "9" * 30},
    )
    odd, b, c = rows(store)
    assert odd["sent_at"] is None
    assert (b["rc"], b["first_received_at"]) == (0, None)
    assert (c["rc"], c["first_received_at"], c["visible_at"]) == (None, None, None)


def test_a_queue_that_is_damaged_or_gone_has_no_row(
    store: Store, queue: Rsmq, db: redis.Redis
) -> None:
    partition_count = QUEUES.cut(store, "q", ColumnBounds(), 1)
    db.hset("rsmq:q:Q", "vt", "soon")
    assert list(QUEUES.read(store, partition_count[0], ColumnBounds())) == []
    queue.delete_queue("q")
    assert list(QUEUES.read(store, partition_count[0], ColumnBounds())) == []
    assert list(MESSAGES.read(store, Range("q", "-inf", "+inf"), ColumnBounds())) == []


@pytest.mark.parametrize("name", ["rsmq:q", "rsmq:q:Q"])
def test_a_key_of_another_type_is_named(
    store: Store, queue: Rsmq, db: redis.Redis, name: str
) -> None:
    db.delete(name)
    db.set(name, "of another type")
    with pytest.raises(WrongType, match=name):
        rows(store)


def test_reading_changes_nothing_and_tables_can_be_pickled(
    store: Store, queue: Rsmq, db: redis.Redis
) -> None:
    queue.send_messages("q", ["a", "b"])
    before = {name: db.dump(name) for name in db.scan_iter()}
    for table in (MESSAGES, QUEUES):
        again: Any = pickle.loads(pickle.dumps(table))  # noqa: S301  (our own)
        assert rows(store, again)
    assert {name: db.dump(name) for name in db.scan_iter()} == before
