"""Operations on a whole queue: counts, pause, drain, clean, obliterate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, JobCounts
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.admin import CHUNK, queues
from tambomq.chasqui.wire.envelope import encode_envelope, encode_member
from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, InvalidValue, QueueBusy
from tambomq.store.sync import Store
from tests.chasqui import working
from tests.chasqui.conftest import Connect
from tests.chasqui.stored import bury, ids
from tests.servers import Server

server = working.server

HOUR = 3_600_000
NOTHING = JobCounts(0, 0, 0, 0, 0, None, paused=False, has_group=False)


def take(db: redis.Redis, keys: Keys, count: int, group: str = "default") -> list[bytes]:
    """Deliver jobs to a worker; return their entries."""
    if not any(found["name"].decode() == group for found in _groups(db, keys)):
        db.xgroup_create(keys.stream, group, "0", mkstream=True)
    rows: Any = db.xreadgroup(group, "c", {keys.stream: ">"}, count=count)
    return [entry for entry, _ in rows[0][1]]


def _groups(db: redis.Redis, keys: Keys) -> Any:
    return db.xinfo_groups(keys.stream) if db.exists(keys.stream) else []


# ── counts ───────────────────────────────────────────────────────────────────


def test_an_unused_queue_is_empty(connect: Connect, db: redis.Redis) -> None:
    assert connect().get_job_counts() == NOTHING
    assert db.dbsize() == 0


def test_every_job_is_counted_where_it_is(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    queue = connect()
    queue.add_bulk([{"name": "n", "data": place} for place in range(5)])
    queue.add("n", 1, delay_ms=HOUR)
    queue.add("n", 1, delay_ms=2 * HOUR, job_id="a")
    queue.add("n", 1, repeat={"kind": "every", "interval_ms": 60_000})
    bury(db, keys, b"\xff")
    take(db, keys, 2)
    assert queue.get_job_counts() == JobCounts(3, 2, 2, 1, 1, 0, paused=False, has_group=True)


def test_the_lag_of_an_overdue_job_is_reported(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    db.zadd(keys.delayed, {"x": now_ms() - 5000, "y": now_ms() + 5000})
    lag_ms = connect().get_job_counts().oldest_delayed_lag_ms
    assert lag_ms is not None
    assert 4000 < lag_ms < 60_000


def test_jobs_run_in_the_group_that_was_asked_for(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    connect().add("n", 1)
    take(db, keys, 1, "others")
    ours, others = connect().get_job_counts(), connect(group="others").get_job_counts()
    assert (ours.active, ours.waiting, ours.has_group) == (0, 1, False)
    assert (others.active, others.waiting, others.has_group) == (1, 0, True)


def test_entries_deleted_while_they_ran_make_no_negative_count(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    connect().add_bulk([{"name": "n", "data": 1}] * 3)
    db.xdel(keys.stream, *take(db, keys, 3))
    counts = connect().get_job_counts()
    assert (counts.waiting, counts.active) == (0, 3)


# ── pause ────────────────────────────────────────────────────────────────────


def test_a_queue_is_paused_until_it_is_resumed(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue, other = connect(), connect()
    assert not queue.is_paused()
    queue.pause()
    queue.pause()
    assert db.get(keys.paused) == b"1"
    assert db.ttl(keys.paused) == -1
    assert other.is_paused()
    assert other.get_job_counts().paused
    assert other.resume() is True
    assert queue.resume() is False
    assert not queue.is_paused()
    assert set(db.keys()) == {keys.requests.encode()}
    assert 0 < int(str(db.pttl(keys.requests))) <= 100_000


def test_a_paused_queue_takes_jobs(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    queue = connect()
    queue.pause()
    queue.add("n", 1)
    assert len(ids(db, keys)) == 1


# ── drain ────────────────────────────────────────────────────────────────────


def test_draining_deletes_waiting_jobs_and_keeps_running_ones(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    queue.add_bulk([{"name": "n", "data": place} for place in range(2 * CHUNK + 3)])
    taken = take(db, keys, 2)
    queue.add("n", 1, delay_ms=HOUR)
    assert queue.drain() == 2 * CHUNK + 1
    assert [entry for entry, _ in db.xrange(keys.stream) or []] == taken
    assert db.zcard(keys.delayed) == 1
    assert queue.drain() == 0


def test_draining_deletes_delayed_jobs_on_request(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    queue.add("n", 1)
    for _ in range(3):
        queue.add("n", 1, delay_ms=HOUR)
    assert queue.drain(delayed=True) == 4
    assert not db.exists(keys.delayed)


def test_a_queue_without_a_group_is_drained_altogether(connect: Connect) -> None:
    queue = connect()
    assert queue.drain() == 0
    queue.add_bulk([{"name": "n", "data": 1}] * 3)
    assert queue.drain() == 3


@pytest.mark.parametrize(
    "forget",
    [lambda queue: queue.drain(delayed=True), lambda queue: queue.clean(-1000, state="delayed")],
)
def test_a_forgotten_id_may_be_scheduled_again(
    connect: Connect, db: redis.Redis, keys: Keys, forget: Callable[[BlockingQueue], int]
) -> None:
    queue = connect()
    queue.add("n", 1, delay_ms=HOUR, job_id="a")
    assert forget(queue) == 1
    queue.add("n", 1, delay_ms=HOUR, job_id="a")
    assert db.zcard(keys.delayed) == 1


# ── clean ────────────────────────────────────────────────────────────────────


def test_cleaning_takes_dead_letters_older_than_the_grace(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    now = now_ms()
    for age_ms in (3 * HOUR, 2 * HOUR, 0):
        db.xadd(keys.dlq, {"d": b"x"}, id=f"{now - age_ms}-0")
    queue = connect()
    assert queue.clean(10 * HOUR) == 0
    assert queue.clean(HOUR, limit=1) == 1
    assert queue.clean(HOUR) == 1
    assert db.xlen(keys.dlq) == 1
    assert queue.clean(-1000) == 1


def test_cleaning_takes_more_than_one_script_can(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    with db.pipeline() as pipe:
        for place in range(CHUNK + 5):
            pipe.xadd(keys.dlq, {"d": b"x"}, id=f"{1000 + place}-0")
        pipe.execute()
    assert connect().clean(limit=CHUNK + 3) == CHUNK + 3
    assert db.xlen(keys.dlq) == 2


def test_cleaning_takes_waiting_jobs_and_leaves_those_that_run(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    for place in range(1, 6):
        db.xadd(keys.stream, {"d": b"x"}, id=f"{1000 * place}-0")
    take(db, keys, 1)
    queue = connect()
    queue.add("n", 1)
    assert queue.clean(HOUR, state="waiting", limit=2) == 2
    assert queue.clean(HOUR, state="waiting") == 2
    assert db.xlen(keys.stream) == 2


def test_cleaning_takes_delayed_jobs_by_when_they_were_added(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    kept = queue.add("n", 1, delay_ms=HOUR)
    for place in range(CHUNK + 5):
        old = encode_envelope(Envelope(str(place), b"\x01", 1000))
        dialect = ("page", "engine")[place % 2]
        db.zadd(keys.delayed, {encode_member("n", old, dialect): now_ms() + HOUR})
    db.zadd(keys.delayed, {b"\xff": 1})
    assert queue.clean(HOUR, state="delayed", limit=3) == 3
    assert queue.clean(HOUR, state="delayed") == CHUNK + 2
    assert db.zcard(keys.delayed) == 2
    assert kept.id.encode() in db.zrange(keys.delayed, 1, 1)[0]


def test_only_some_states_can_be_cleaned(connect: Connect) -> None:
    queue = connect()
    for state in ("active", "", "completed"):
        with pytest.raises(InvalidFormat, match="one of dlq, waiting, delayed"):
            queue.clean(state=state)
    for limit in (-1, 1.5, True):
        with pytest.raises(InvalidValue, match="limit"):
            queue.clean(limit=limit)  # type: ignore[arg-type]


# ── obliterate ───────────────────────────────────────────────────────────────


def test_obliterating_deletes_all_keys_of_a_queue(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect(announce=True)
    queue.add("n", 1, job_id="odd }{ *")
    queue.add("n", 1, job_id="a", delay_ms=HOUR)
    queue.add("n", 1, repeat={"kind": "every", "interval_ms": 60_000})
    queue.pause()
    bury(db, keys, b"x")
    for key in (keys.result("a"), keys.progress("a"), keys.promoter_lock, keys.limiter):
        db.set(key, "x")
    before = db.dbsize()
    connect("other").add("n", 1)
    others = db.dbsize() - before
    assert queue.obliterate() == before
    assert db.dbsize() == others
    assert queue.get_job_counts() == NOTHING
    assert queue.obliterate() == 0


@pytest.mark.parametrize("name", ["a*", "[ab]", "a?c", "back\\slash", "{x}"])
def test_a_name_that_looks_like_a_pattern_deletes_no_other_queue(
    connect: Connect, db: redis.Redis, name: str
) -> None:
    for other in ("a", "abc", "b", "backslash", "x"):
        db.set(Keys(other).stream, "x")
    odd = connect(name)
    odd.add("n", 1, delay_ms=HOUR, job_id="x")
    assert odd.obliterate() == 5
    assert db.dbsize() == 5


def test_a_busy_queue_is_obliterated_only_by_force(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    queue.add_bulk([{"name": "n", "data": 1}] * 3)
    take(db, keys, 2)
    with pytest.raises(QueueBusy, match="2 jobs") as caught:
        queue.obliterate()
    assert (caught.value.queue, caught.value.active) == (keys.queue, 2)
    assert db.xlen(keys.stream) == 3
    assert queue.obliterate(force=True) > 0
    assert db.dbsize() == 0


def test_a_queue_of_many_keys_is_obliterated(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    with db.pipeline() as pipe:
        for place in range(3000):
            pipe.set(keys.result(str(place)), "x")
        pipe.execute()
    assert connect().obliterate() == 3000


# ── which queues there are ───────────────────────────────────────────────────


def test_queues_with_waiting_delayed_or_repeatable_jobs_are_listed(
    connect: Connect, db: redis.Redis, server: Server
) -> None:
    connect("waits").add("n", 1)
    connect("delays").add("n", 1, delay_ms=HOUR)
    connect("recurs").add("n", 1, repeat={"kind": "every", "interval_ms": 60_000})
    db.set("rsmq:QUEUES", "x")
    store = Store(server.url)
    try:
        assert store.follow(queues()) == ["delays", "recurs", "waits"]
    finally:
        store.close()
