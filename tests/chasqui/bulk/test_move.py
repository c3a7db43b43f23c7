"""Jobs that leave a queue for another: the events stream says so, in the same step."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.bulk import moves
from tambomq.bulk.moves import MoveBatch, Tally
from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.bulk import move as move_ops
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import RETURNED, Keys
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.wire.envelope import encode_envelope, encode_member
from tambomq.clock import now_ms
from tambomq.store.sync import Store
from tests.chasqui.stored import events, rows

HOUR = 3_600_000
CAP = Policy().events_cap


def take(store: Store, keys: Keys, cap: int = CAP) -> MoveBatch:
    return store.run(move_ops.take(keys, cap, "m", "run"))


def take_later(store: Store, keys: Keys, cap: int = CAP) -> MoveBatch:
    return store.follow(move_ops.take_later(keys, cap, "m", "run"))


def arrived(store: Store, keys: Keys, number: int) -> None:
    store.run(moves.arrived(keys.move("m"), keys.transit("m"), number, Tally()))


def moved(db: redis.Redis, keys: Keys) -> list[tuple[str | None, str]]:
    """Return the id and the name of each job that the journal reports as moved."""
    found = [event for event in events(db, keys) if event.name == "moved"]
    return [(event.job_id, event.job_name) for event in found]


def job(id: str) -> bytes:
    return encode_envelope(Envelope(id, b"\x01", 1000))


def test_a_departure_is_recorded_once(each: Store, each_db: redis.Redis, keys: Keys) -> None:
    before: Any = each_db.time()
    each_db.xadd(keys.stream, {"d": job("ü:1"), "n": "имя"})
    each_db.xadd(keys.stream, {"d": job("b")})
    each_db.zadd(keys.delayed, {encode_member("late", job("c"), "page"): now_ms() + HOUR})
    each_db.zadd(keys.delayed, {encode_member("late", job("d"), "engine"): now_ms() + 2 * HOUR})
    batch = take(each, keys)
    assert len(batch.rows) == 2
    at_once = [("ü:1", "имя"), ("b", "")]
    # Whoever comes after one that was killed finds them in transit.
    assert take(each, keys) == batch
    assert take_later(each, keys) == batch
    assert moved(each_db, keys) == at_once
    arrived(each, keys, 1)
    batch = take_later(each, keys)
    assert take_later(each, keys) == batch
    arrived(each, keys, 2)
    assert take(each, keys).rows == take_later(each, keys).rows == []
    assert moved(each_db, keys) == [*at_once, ("c", "late"), ("d", "late")]
    assert [fields[::2] for _, fields in rows(each_db, keys.events)[:2]] == [
        [b"e", b"id", b"ts", b"n"],
        [b"e", b"id", b"ts"],
    ]
    assert before[0] * 1000 <= int(rows(each_db, keys.events)[0][1][5])


def test_held_jobs_are_not_recorded_and_released_ones_are(
    store: Store, blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    jobs = [blocking.add("n", n) for n in range(4)]
    db.xgroup_create(keys.stream, "default", "0")
    taken: Any = db.xreadgroup("default", "c", {keys.stream: ">"}, count=3)
    entries = [entry for entry, _ in taken[0][1]]
    db.xclaim(keys.stream, "default", RETURNED, 0, entries[:2])
    assert len(take(store, keys).rows) == 3
    assert moved(db, keys) == [(jobs[place].id, "n") for place in (0, 1, 3)]


def test_ids_of_delayed_jobs_are_free_again(
    store: Store, blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    for id in ("a", "b", "c"):
        blocking.add("n", 1, job_id=id, delay_ms=HOUR)
    batch = take_later(store, keys)
    assert all(move_ops.decode_outbound(row).taken_ms > HOUR for row in batch.rows)
    assert not db.exists(*(name for id in "abc" for name in (keys.marker(id), keys.index(id))))
    assert sorted(id or "" for id, _ in moved(db, keys)) == ["a", "b", "c"]


def test_undecodable_jobs_leave_without_an_event(store: Store, db: redis.Redis, keys: Keys) -> None:
    db.xadd(keys.stream, {"d": b"junk"})
    db.xadd(keys.stream, {"x": b"y"})
    db.zadd(keys.delayed, {b"\x00junk": now_ms() + HOUR})
    assert len(take(store, keys).rows) == 2
    arrived(store, keys, 1)
    assert len(take_later(store, keys).rows) == 1
    assert not db.exists(keys.events)


def test_without_events_nothing_is_recorded(store: Store, db: redis.Redis, keys: Keys) -> None:
    db.xadd(keys.stream, {"d": job("a")})
    assert len(take(store, keys, 0).rows) == 1
    assert not db.exists(keys.events)


@pytest.mark.parametrize("later", [False, True])
def test_events_that_cannot_be_written_block_no_move(
    store: Store, db: redis.Redis, keys: Keys, later: bool
) -> None:
    db.set(keys.events, "no stream")
    if later:
        db.zadd(keys.delayed, {encode_member("n", job("a"), "page"): now_ms() + HOUR})
    else:
        db.xadd(keys.stream, {"d": job("a")})
    assert len((take_later if later else take)(store, keys).rows) == 1
    assert not db.xlen(keys.stream)
    assert not db.exists(keys.delayed)
