"""Adding many jobs in one call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
import redis

from tambomq.chasqui import BackoffSpec, BlockingQueue
from tambomq.chasqui.job import RetryOverride
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.add import CHUNK, FIRST_CHUNK
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.errors import (
    BatchIncomplete,
    ForeignLeader,
    InvalidFormat,
    LocalProtocolError,
    QueueFull,
)
from tests.chasqui.conftest import Connect
from tests.chasqui.stored import delayed, emitted_events, ids, jobs

HOUR = 3_600_000
EVERY = {"kind": "every", "interval_ms": 60_000}


def plain(count: int) -> list[dict[str, Any]]:
    return [{"name": "n", "data": place} for place in range(count)]


def test_jobs_of_a_batch_wait_in_their_order(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    given: list[dict[str, Any]]
    given = [{"name": "a", "data": 1}, {"name": "", "data": None}, {"name": "c", "data": {"x": []}}]
    added = twin.add_bulk(given)
    assert [(job.name, job.data, job.attempt) for job in added] == [
        ("a", 1, 1),
        ("", None, 1),
        ("c", {"x": []}, 1),
    ]
    assert [
        (name, stored.id, decode_payload(stored.payload)) for name, stored in jobs(db, keys)
    ] == [(job.name, job.id, job.data) for job in added]
    assert given[0] == {"name": "a", "data": 1}


def test_an_empty_batch_needs_no_round_trip() -> None:
    with BlockingQueue("q", redis_url="redis://127.0.0.1:1") as unconnected:
        assert unconnected.add_bulk([]) == []


def test_each_job_has_the_options_of_add(twin: BlockingQueue, db: redis.Redis, keys: Keys) -> None:
    backoff = BackoffSpec.fixed(5)
    twin.add_bulk(
        [
            {"name": "a", "data": 1, "attempts": 3, "backoff": 7, "job_id": None},
            {"name": "b", "data": 2, "job_id": "b", "backoff": backoff},
            {"name": "c", "data": 3, "delay_ms": HOUR, "job_id": "c"},
            {"name": "d", "data": 4, "delay": timedelta(hours=2), "attempts": 1},
            {"name": "e", "data": 5, "delay_ms": 0, "repeat": None, "missed_fires": None},
        ]
    )
    waiting = dict(jobs(db, keys))
    assert waiting.keys() == {"a", "b", "e"}
    assert waiting["a"].retry == RetryOverride(3, BackoffSpec("fixed", 7))
    assert (waiting["b"].id, waiting["b"].retry) == ("b", RetryOverride(None, backoff))
    later = delayed(db, keys)
    assert [name for name, *_ in later] == ["c", "d"]
    assert later[0][1].id == "c"
    assert twin.cancel_delayed("c") is True


def test_some_jobs_of_a_batch_may_recur(twin: BlockingQueue, db: redis.Redis, keys: Keys) -> None:
    added = twin.add_bulk(
        [
            {"name": "a", "data": 1},
            {"name": "b", "data": 2, "repeat": EVERY},
            {"name": "c", "data": 3, "repeat": EVERY, "job_id": "mine", "attempts": 2},
        ]
    )
    assert [job.id for job in added] == [*ids(db, keys), "b::every:60000", "mine"]
    assert sorted(meta.key for meta in twin.get_repeatable_jobs()) == ["b::every:60000", "mine"]


def test_jobs_of_a_batch_with_ids_count_once(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    given = [{"name": "n", "data": place, "job_id": "same"} for place in range(3)]
    added = twin.add_bulk(given)
    assert [job.id for job in added] == ["same"] * 3
    assert [decode_payload(stored.payload) for _, stored in jobs(db, keys)] == [0]


def test_each_job_of_a_batch_emits_an_event(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    added = connect(announce=True).add_bulk([*plain(2), {"name": "n", "data": 1, "delay_ms": HOUR}])
    assert emitted_events(db, keys) == [
        ("waiting", added[0].id),
        ("waiting", added[1].id),
        ("delayed", added[2].id),
    ]


def test_a_batch_is_one_script(twin: BlockingQueue, db: redis.Redis) -> None:
    twin.add_bulk(plain(1))
    db.config_resetstat()
    twin.add_bulk(plain(CHUNK))
    stats = cast("Any", db.info("commandstats"))
    assert [stats[name]["calls"] for name in stats if name.startswith("cmdstat_eval")] == [1]
    assert stats["cmdstat_xadd"]["calls"] == CHUNK


def test_a_long_batch_keeps_its_order_over_several_scripts(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    added = twin.add_bulk(plain(2 * CHUNK + 7))
    assert ids(db, keys) == [job.id for job in added]


def test_a_batch_may_have_many_bytes(blocking: BlockingQueue, db: redis.Redis, keys: Keys) -> None:
    blocking.add_bulk([{"name": "n", "data": b"x" * 400_000} for _ in range(6)])
    assert db.xlen(keys.stream) == 6


# ── what goes wrong ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "bad",
    [
        {"name": "n", "data": object()},
        {"name": "n" * 257, "data": 1},
        {"name": 7, "data": 1},
        {"name": None, "data": 1},
        {"name": None, "data": 1, "attempts": 2},
        {"name": "n", "data": 1, "repeat": EVERY, "delay_ms": 5},
        {"name": "n", "data": 1, "job_id": " "},
        {"name": "n", "data": 1, "delay_ms": -1},
        {"name": "n", "data": 1, "delay_ms": 5, "delay": timedelta(1)},
        {"name": "n", "data": 1, "attempts": -1},
        {"name": "n", "data": 1, "backoff": "x"},
        {"name": "n", "data": 1, "repeat": {"kind": "every", "interval_ms": 0}},
        {"name": "n", "data": 1, "repeat": {"kind": "cron", "expression": "x"}},
        {"name": "n", "data": 1, "priority": 5},
        {"name": "n", "data": 1, "delayMs": 5},
        {"name": "n"},
        {"data": 1},
        {},
    ],
)
def test_nothing_of_a_batch_is_sent_if_one_job_is_not_valid(
    twin: BlockingQueue, db: redis.Redis, bad: dict[str, Any]
) -> None:
    with pytest.raises(LocalProtocolError):
        twin.add_bulk([*plain(3), {"name": "n", "data": 1, "job_id": "a", "delay_ms": 9}, bad])
    with pytest.raises(LocalProtocolError):
        twin.add_bulk([bad])
    assert db.dbsize() == 0


def test_an_unknown_key_is_named_together_with_the_known_ones(twin: BlockingQueue) -> None:
    with pytest.raises(InvalidFormat, match=r"'priority' is not valid: has .*attempts.*job_id"):
        twin.add_bulk([{"name": "n", "data": 1, "priority": 5}])
    with pytest.raises(InvalidFormat, match="needs data and name"):
        twin.add_bulk([{}])


def test_a_batch_that_exceeds_the_cap_adds_nothing(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    small = connect(max_stream_len=3)
    small.add("n", 1)
    with pytest.raises(QueueFull):
        small.add_bulk(plain(3))
    assert db.xlen(keys.stream) == 1
    small.add_bulk(plain(2))
    assert db.xlen(keys.stream) == 3


def test_a_partly_added_batch_lists_the_missing_jobs(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    small = connect(max_stream_len=2)
    given = [
        {"name": "n", "data": 0, "job_id": "keyed"},
        *plain(2),
        {"name": "n", "data": 1, "delay_ms": 9},
    ]
    with pytest.raises(BatchIncomplete, match="3 of 4") as caught:
        small.add_bulk(given)
    assert caught.value.ids[0] is None
    assert caught.value.ids[1:3] == ids(db, keys)
    assert [stored.id for _, stored, _ in delayed(db, keys)] == caught.value.ids[3:]
    assert isinstance(caught.value.__cause__, QueueFull)


def test_a_long_batch_that_fills_the_queue_says_which_parts_are_there(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    small = connect(max_stream_len=FIRST_CHUNK + 5)
    with pytest.raises(BatchIncomplete) as caught:
        small.add_bulk(plain(CHUNK + 10))
    assert caught.value.ids == [*ids(db, keys), *[None] * (CHUNK + 10 - FIRST_CHUNK)]


def test_a_batch_of_delayed_jobs_meets_a_foreign_leader_as_one(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.promoter_lock, "c-another")
    late = [{"name": "n", "data": 1, "delay_ms": HOUR}]
    with pytest.raises(ForeignLeader):
        connect(dialect="page").add_bulk(late * 2)
    with pytest.raises(BatchIncomplete) as caught:
        connect(dialect="page").add_bulk([*late, *plain(1)])
    assert caught.value.ids == [None, *ids(db, keys)]
    connect(dialect="engine").add_bulk(late * 2)
    assert len(delayed(db, keys)) == 2
