"""Deduplication of job ids: in the window of a producer, or strict."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
import redis

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, QueueFull
from tambomq.store.features import Features, features
from tambomq.store.sync import Store
from tests.chasqui import working
from tests.chasqui.conftest import Connect
from tests.chasqui.stored import delayed, emitted_events, ids, jobs, rows
from tests.servers import Server

server = working.server

HOUR = 3_600_000


def has_idmp(server: Server) -> bool:
    store = Store(server.url)
    try:
        return store.follow(features()).idmp
    finally:
        store.close()


def data(db: redis.Redis, keys: Keys) -> list[Any]:
    return [decode_payload(stored.payload) for _, stored in jobs(db, keys)]


# ── a window of the producer ─────────────────────────────────────────────────


def test_a_producer_adds_an_id_once(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    queue = connect()
    assert [queue.add("n", place, job_id="a").id for place in range(3)] == ["a"] * 3
    assert data(db, keys) == [0]


def test_an_id_stays_in_use_after_its_job_has_ended(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    queue.add("n", 1, job_id="a")
    db.xdel(keys.stream, rows(db, keys.stream)[0][0])
    queue.add("n", 2, job_id="a")
    assert data(db, keys) == []


def test_a_queue_that_was_closed_is_still_the_same_producer(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    queue.add("n", 1, job_id="a")
    queue.close()
    queue.add("n", 2, job_id="a")
    assert data(db, keys) == [1]


def test_another_producer_has_a_window_of_its_own(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    connect().add("n", 1, job_id="a")
    connect().add("n", 2, job_id="a")
    assert data(db, keys) == [1, 2]


def test_jobs_without_ids_are_never_taken_for_each_other(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    for _ in range(5):
        queue.add("n", 1)
    assert len(set(ids(db, keys))) == 5


def test_a_duplicate_add_emits_no_event(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    for options in ({}, {"dedup": "strict"}):
        queue = connect(announce=True, **options)
        for _ in range(2):
            queue.add("n", 1, job_id=f"a{options}")
        queue.add_bulk([{"name": "n", "data": 1, "job_id": f"a{options}"}])
    assert [event for event, _ in emitted_events(db, keys)] == ["waiting", "waiting"]


def test_without_idmp_the_window_is_kept_in_a_key(
    connect: Connect, db: redis.Redis, server: Server, keys: Keys
) -> None:
    connect().add("n", 1, job_id="a")
    windows = cast("list[bytes]", db.keys(keys.window("*").replace("{", "[{]")))
    if has_idmp(server):
        assert windows == []
    else:
        [window] = windows
        assert db.zrange(window, 0, -1) == [b"a"]
        assert 0 < db.pttl(window) <= 100_000


def test_the_window_keeps_ids_for_100_s_and_at_most_1000(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    # As on a server without IDMP, whatever this one supports.
    queue._producer._features = Features()
    queue.add("n", 1, job_id="a")
    [window] = cast("list[bytes]", db.keys(keys.window("*").replace("{", "[{]")))
    db.zadd(window, {"a": now_ms() - 100_001})
    queue.add("n", 2, job_id="a")
    assert data(db, keys) == [1, 2]
    db.zadd(window, {"a": now_ms() - 100_001})
    db.zadd(window, {f"old-{place}": now_ms() - 50_000 for place in range(2000)})
    queue.add("n", 3, job_id="a")
    assert db.zcard(window) == 1000
    assert db.zrange(window, -1, -1) == [b"a"]


# ── strictly ─────────────────────────────────────────────────────────────────


def test_a_strict_id_is_added_once_by_all_producers(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    for place in range(3):
        connect(dedup="strict").add("n", place, job_id="a")
    assert data(db, keys) == [0]
    assert re.fullmatch(rb"[A-Za-z0-9]{8}", cast("bytes", db.get(keys.added("a"))))


def test_a_strict_id_counts_for_as_long_as_the_queue_says(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    connect(dedup="strict").add("n", 1, job_id="day")
    connect(dedup="strict", dedup_ttl_secs=60).add("n", 1, job_id="minute")
    assert 86_390 < db.ttl(keys.added("day")) <= 86_400
    assert 50 < db.ttl(keys.added("minute")) <= 60
    db.delete(keys.added("minute"))
    connect(dedup="strict").add("n", 2, job_id="minute")
    assert ids(db, keys) == ["day", "minute", "minute"]


def test_a_strict_queue_deduplicates_only_ids_that_callers_chose(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    connect(dedup="strict").add_bulk([{"name": "n", "data": place} for place in range(3)])
    assert db.xlen(keys.stream) == 3
    assert db.keys("*:added:*") == []


def test_a_strict_id_in_a_batch_counts_once(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    connect(dedup="strict").add("n", 0, job_id="a")
    connect(dedup="strict").add_bulk(
        [{"name": "n", "data": place, "job_id": id} for place, id in enumerate("abb", 1)]
    )
    assert data(db, keys) == [0, 2]


# ── delayed ids ──────────────────────────────────────────────────────────────


def test_a_scheduled_id_counts_once_for_all_producers(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    connect().add("n", 1, job_id="a", delay_ms=HOUR)
    connect().add("n", 2, job_id="a", delay_ms=2 * HOUR)
    connect(dedup="strict", dialect="engine").add("n", 3, job_id="a", delay_ms=1)
    [(_, stored, due)] = delayed(db, keys)
    assert decode_payload(stored.payload) == 1
    assert due == stored.created_at_ms + HOUR
    assert emitted_events(db, keys) == [("delayed", "a")]


def test_a_scheduled_id_stays_taken_after_it_was_due(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    queue.add("n", 1, job_id="a", delay_ms=5000)
    db.delete(keys.delayed, keys.index("a"))
    queue.add("n", 2, job_id="a", delay_ms=5000)
    assert not db.exists(keys.delayed)
    assert 3600 < db.ttl(keys.marker("a")) <= 3605


def test_a_scheduled_id_and_one_that_waits_have_nothing_to_do_with_each_other(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    for dedup in ("window", "strict"):
        queue = connect(dedup=dedup)
        queue.add("n", 1, job_id=dedup, delay_ms=HOUR)
        queue.add("n", 2, job_id=dedup)
    assert ids(db, keys) == ["window", "strict"]
    assert len(delayed(db, keys)) == 2


def test_a_scheduled_job_without_an_id_is_never_taken_for_another(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    for _ in range(3):
        queue.add("n", 1, delay_ms=HOUR)
    assert db.zcard(keys.delayed) == 3
    assert not db.keys("*:dlid:*") + db.keys("*:didx:*")


# ── a full queue ─────────────────────────────────────────────────────────────


def test_a_duplicate_of_a_strict_id_is_accepted_by_a_full_queue(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect(dedup="strict", max_stream_len=1)
    queue.add("n", 1, job_id="a")
    assert queue.add("n", 1, job_id="a").id == "a"
    with pytest.raises(QueueFull):
        queue.add("n", 1, job_id="b")
    assert not db.exists(keys.added("b"))


def test_a_duplicate_id_is_accepted_by_a_full_queue(connect: Connect) -> None:
    queue = connect(max_stream_len=1)
    queue.add("n", 1, job_id="a")
    assert queue.add("n", 1, job_id="a").id == "a"


def test_an_id_that_a_full_queue_refused_can_be_added_later(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    for dedup in ("window", "strict"):
        db.flushall()
        queue = connect(dedup=dedup, max_stream_len=1)
        queue.add("n", 1)
        with pytest.raises(QueueFull):
            queue.add("n", 2, job_id="a")
        db.xtrim(keys.stream, maxlen=0, approximate=False)
        queue.add("n", 2, job_id="a")
        assert ids(db, keys) == ["a"]


# ── an id that must be given ─────────────────────────────────────────────────


def test_a_unique_job_needs_an_id(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    queue = connect()
    for id in (None, "", " "):
        with pytest.raises(InvalidFormat, match="job_id"):
            queue.add_unique("n", 1, job_id=cast("str", id))
    assert db.dbsize() == 0
    queue.add_unique("n", 1, job_id="a")
    queue.add_unique("n", 2, job_id="a")
    queue.add_unique("n", 3, job_id="a", delay_ms=HOUR)
    queue.add_unique("n", 4, job_id="a", repeat={"kind": "every", "interval_ms": 5000})
    assert data(db, keys) == [1]
    assert db.zcard(keys.delayed) == 1
    assert db.zrange(keys.repeat, 0, -1) == [b"a"]
