"""Jobs deleted before they run: the same script emits a `cancelled` event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import RETURNED, Keys
from tambomq.chasqui.ops.admin import CHUNK
from tambomq.chasqui.wire.envelope import encode_envelope, encode_member
from tambomq.clock import now_ms
from tests.chasqui.conftest import Connect
from tests.chasqui.stored import emitted_events, events, ids, rows

HOUR = 3_600_000


def cancelled(db: redis.Redis, keys: Keys) -> list[tuple[str | None, str]]:
    """Return the id and the name of each ``cancelled`` event."""
    found = [event for event in events(db, keys) if event.name == "cancelled"]
    return [(event.job_id, event.job_name) for event in found]


def old(id: str) -> bytes:
    """Return the envelope of a job that was added long ago."""
    return encode_envelope(Envelope(id, b"\x01", 1000))


def test_a_cancelled_job_emits_one_event_after_delayed(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    before: Any = db.time()
    twin.add("mail", 1, job_id="ü:1", delay_ms=HOUR)
    assert twin.cancel_delayed("ü:1") is True
    assert twin.cancel_delayed("ü:1") is False
    assert emitted_events(db, keys) == [("delayed", "ü:1"), ("cancelled", "ü:1")]
    (_, fields) = rows(db, keys.events)[-1]
    assert fields[::2] == [b"e", b"id", b"ts", b"n"]
    assert fields[7] == b"mail"
    after: Any = db.time()
    assert before[0] * 1000 <= int(fields[5]) <= after[0] * 1000 + 1000


def test_each_of_many_cancelled_jobs_emits_an_event(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    for id in "abc":
        twin.add("", 1, job_id=id, delay_ms=HOUR)
    twin.cancel_delayed_bulk(["c", "none", "a", "a"])
    assert cancelled(db, keys) == [("c", ""), ("a", "")]


@pytest.mark.parametrize("dialect", ["page", "engine"])
def test_the_event_has_the_job_name_in_both_dialects(
    connect: Connect, db: redis.Redis, keys: Keys, dialect: str
) -> None:
    queue = connect(dialect=dialect)
    queue.add("имя", 1, job_id="a", delay_ms=HOUR)
    queue.cancel_delayed("a")
    queue.add("имя", 1, job_id="b", delay_ms=HOUR)
    queue.drain(delayed=True)
    assert cancelled(db, keys) == [("a", "имя"), ("b", "имя")]


def test_drained_jobs_emit_events(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    queue = connect()
    jobs = queue.add_bulk([{"name": "n", "data": n} for n in range(CHUNK + 2)])
    late = [queue.add("late", n, delay_ms=HOUR + n) for n in range(CHUNK + 2)]
    assert queue.drain(delayed=True) == 2 * CHUNK + 4
    assert cancelled(db, keys) == [
        *((job.id, "n") for job in jobs),
        *((job.id, "late") for job in late),
    ]
    assert queue.drain(delayed=True) == 0
    assert len(cancelled(db, keys)) == 2 * CHUNK + 4


def test_a_drain_emits_events_for_released_jobs_but_not_for_active_ones(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    jobs = [queue.add("n", n) for n in range(4)]
    db.xgroup_create(keys.stream, "default", "0")
    taken: Any = db.xreadgroup("default", "c", {keys.stream: ">"}, count=3)
    entries = [entry for entry, _ in taken[0][1]]
    db.xclaim(keys.stream, "default", RETURNED, 0, entries[:2])
    assert queue.drain() == 3
    assert ids(db, keys) == [jobs[2].id]
    assert cancelled(db, keys) == [(jobs[place].id, "n") for place in (0, 1, 3)]


@pytest.mark.parametrize("state", ["waiting", "delayed"])
def test_cleaned_jobs_emit_events(
    connect: Connect, db: redis.Redis, keys: Keys, state: str
) -> None:
    queue = connect()
    for place, id in enumerate("abc"):
        if state == "waiting":
            db.xadd(keys.stream, {"d": old(id), "n": "n"}, id=f"{1000 + place}-0")
        else:
            db.zadd(keys.delayed, {encode_member("n", old(id), "page"): now_ms() + HOUR + place})
    assert queue.clean(HOUR, state=state, limit=2) == 2
    assert cancelled(db, keys) == [("a", "n"), ("b", "n")]


@pytest.mark.parametrize(
    "forget",
    [
        lambda queue: queue.cancel_delayed("a"),
        lambda queue: queue.drain(delayed=True),
        lambda queue: queue.clean(-HOUR, state="delayed"),
    ],
)
def test_without_events_nothing_is_emitted(
    connect: Connect, db: redis.Redis, keys: Keys, forget: Callable[[BlockingQueue], object]
) -> None:
    queue = connect(events_enabled=False)
    queue.add("n", 1, job_id="a", delay_ms=HOUR)
    assert forget(queue)
    windows = keys.window("").encode()
    assert {key for key in db.scan_iter() if not key.startswith(windows)} == set()


@pytest.mark.parametrize(
    "forget",
    [
        lambda queue: queue.cancel_delayed("a"),
        lambda queue: queue.drain(delayed=True),
        lambda queue: queue.clean(-HOUR, state="delayed"),
    ],
)
def test_events_that_cannot_be_written_undo_nothing(
    connect: Connect, db: redis.Redis, keys: Keys, forget: Callable[[BlockingQueue], object]
) -> None:
    queue = connect()
    queue.add("n", 1, job_id="a", delay_ms=HOUR)
    db.set(keys.events, "no stream")
    assert forget(queue)
    windows = keys.window("").encode()
    left = {key for key in db.scan_iter() if not key.startswith(windows)}
    assert left == {keys.events.encode()}


def test_unreadable_jobs_are_deleted_without_an_event(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    db.zadd(keys.delayed, {b"\xff": 1})
    db.xadd(keys.stream, {"d": b"\xff"})
    db.xadd(keys.stream, {"x": b"no job"})
    assert connect().drain(delayed=True) == 3
    assert list(db.scan_iter()) in ([], [keys.stream.encode()])


def test_a_job_that_left_meanwhile_emits_no_event_and_keeps_its_id(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    queue.add("n", 1, job_id="a", delay_ms=HOUR)
    db.delete(keys.delayed)
    assert queue.cancel_delayed("a") is False
    assert queue.drain(delayed=True) == 0
    assert cancelled(db, keys) == []
    assert db.exists(keys.marker("a"), keys.index("a")) == 2
