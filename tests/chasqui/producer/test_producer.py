"""Adding to a queue at its maximum length."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.chasqui.keys import Keys
from tambomq.errors import InvalidFormat, InvalidValue, QueueFull
from tests.chasqui import working
from tests.chasqui.conftest import Connect
from tests.chasqui.stored import events, ids, rows
from tests.rsmq.stored import at_rest

server = working.server

# Redis trims whole nodes of a stream, which have so many entries.
NODE = 100


def test_a_full_queue_refuses_and_keeps_what_it_has(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect(max_stream_len=3)
    added = [queue.add("n", place).id for place in range(3)]
    before = at_rest(db)
    with pytest.raises(QueueFull, match=r"holds 3 jobs .* max_stream_len.*overflow") as caught:
        queue.add("n", 3)
    assert (caught.value.queue, caught.value.cap) == (keys.queue, 3)
    with pytest.raises(QueueFull):
        queue.add("n", 3, job_id="a")
    assert at_rest(db) == before
    assert ids(db, keys) == added


@pytest.mark.parametrize("announce", [False, True])
def test_a_batch_that_is_one_job_too_large_is_refused_whole(
    connect: Connect, db: redis.Redis, keys: Keys, announce: bool
) -> None:
    queue = connect(max_stream_len=3, announce=announce)
    queue.add("n", 0)
    with pytest.raises(QueueFull):
        queue.add_bulk([{"name": "n", "data": place} for place in range(3)])
    assert db.xlen(keys.stream) == 1
    queue.add_bulk([{"name": "n", "data": place} for place in range(2)])
    assert db.xlen(keys.stream) == 3


def test_a_job_that_ends_frees_a_slot_of_a_full_queue(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect(max_stream_len=1)
    queue.add("n", 1)
    with pytest.raises(QueueFull):
        queue.add("n", 2)
    db.xdel(keys.stream, rows(db, keys.stream)[0][0])
    job = queue.add("n", 2)
    assert ids(db, keys) == [job.id]


def test_jobs_that_run_count_as_well(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    queue = connect(max_stream_len=1)
    queue.add("n", 1)
    db.xgroup_create(keys.stream, "default", "0")
    db.xreadgroup("default", "c", {keys.stream: ">"})
    with pytest.raises(QueueFull):
        queue.add("n", 2)


def test_delayed_jobs_and_specs_can_be_added_to_a_full_queue(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect(max_stream_len=1)
    queue.add("n", 1)
    queue.add("n", 2, delay_ms=60_000)
    queue.add("n", 3, repeat={"kind": "every", "interval_ms": 5000})
    assert db.zcard(keys.delayed) == db.zcard(keys.repeat) == 1


def test_the_cap_is_each_producers_own(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    small, large = connect(max_stream_len=1), connect(max_stream_len=5)
    small.add("n", 1)
    large.add("n", 2)
    with pytest.raises(QueueFull):
        small.add("n", 3)
    large.add_bulk([{"name": "n", "data": 1}] * 3)
    assert db.xlen(keys.stream) == 5


def test_a_queue_that_trims_accepts_all_jobs_and_drops_the_oldest(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect(max_stream_len=NODE, overflow="trim")
    added = [queue.add("n", place).id for place in range(3 * NODE + 5)]
    kept = ids(db, keys)
    assert NODE <= len(kept) < 2 * NODE
    assert added[-len(kept) :] == kept


def test_trimmed_jobs_are_counted(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    queue = connect(max_stream_len=NODE, overflow="trim")
    queue.add_bulk([{"name": "n", "data": 1}] * (3 * NODE))
    for _ in range(2 * NODE):
        queue.add("n", 1)
    trims = events(db, keys)
    assert {event.name for event in trims} == {"trimmed"}
    assert {(event.job_id, event.fields["reason"]) for event in trims} == {(None, "stream")}
    lost = sum(event.fields["count"] for event in trims)
    assert lost == 5 * NODE - db.xlen(keys.stream)


def test_without_trimmed_jobs_no_event_is_emitted(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect(max_stream_len=NODE, overflow="trim")
    queue.add_bulk([{"name": "n", "data": 1}] * NODE)
    queue.add("n", 1, job_id="a")
    assert not db.exists(keys.events)


def test_a_strict_id_trims_as_well(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    queue = connect(max_stream_len=NODE, overflow="trim", dedup="strict")
    for place in range(2 * NODE + 1):
        queue.add("n", place, job_id=str(place))
    assert db.xlen(keys.stream) < 2 * NODE
    assert [event.name for event in events(db, keys)] == ["trimmed"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_stream_len": 0}, InvalidValue),
        ({"max_stream_len": -1}, InvalidValue),
        ({"overflow": "drop"}, InvalidFormat),
        ({"overflow": ""}, InvalidFormat),
    ],
)
def test_an_invalid_cap_is_refused(
    connect: Connect, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        connect(**options)
