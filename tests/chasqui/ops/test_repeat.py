"""Repeatable jobs are created, listed and removed by clients. Leaders fire them."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis

from tambomq.chasqui import BlockingQueue, MissedFiresPolicy, RepeatPattern
from tambomq.chasqui.job import RetryOverride
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.chasqui.wire.repeat import decode_spec
from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, InvalidValue, LocalProtocolError
from tests.chasqui.conftest import Connect
from tests.rsmq.stored import at_rest

EVERY = RepeatPattern.every(60_000)
FAR = 2_000_000_000_000


def score(db: redis.Redis, keys: Keys, key: str) -> int:
    found = db.zscore(keys.repeat, key)
    assert found is not None
    return int(found)


def spec(db: redis.Redis, keys: Keys, key: str) -> Any:
    return decode_spec(cast("bytes", db.hget(keys.spec(key), "spec")))


def test_a_repeatable_job_is_stored_with_its_next_fire(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    before = now_ms()
    job = twin.upsert_repeatable_job("digest", {"k": 1}, repeat=EVERY)
    assert (job.id, job.name, job.data) == ("digest::every:60000", "digest", {"k": 1})
    assert before + 60_000 <= score(db, keys, job.id) <= now_ms() + 60_000
    stored = spec(db, keys, job.id)
    assert (stored.key, stored.job_name, stored.pattern) == (job.id, "digest", EVERY)
    assert decode_payload(stored.payload) == {"k": 1}
    made = (keys.repeat, keys.spec(job.id), keys.requests)
    assert set(db.keys()) == {key.encode() for key in made}


def test_add_can_create_a_repeatable_job_too(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    once = MissedFiresPolicy.fire_once()
    job = twin.add(
        "n", 1, repeat={"kind": "every", "interval_ms": 5}, job_id="k", missed_fires=once
    )
    assert job.id == "k"
    assert spec(db, keys, "k").missed_fires == once
    assert not db.exists(keys.stream)


def test_a_cron_fires_next_when_its_zone_says(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    for tz, hour in ((None, 12), ("+02:00", 10), ("Asia/Tokyo", 3)):
        job = twin.upsert_repeatable_job("n", 1, repeat=RepeatPattern.cron("0 12 * * *", tz=tz))
        assert score(db, keys, job.id) // 3_600_000 % 24 == hour


def test_options_of_a_spec_are_kept(twin: BlockingQueue, db: redis.Redis, keys: Keys) -> None:
    twin.upsert_repeatable_job(
        "n",
        1,
        repeat=EVERY,
        limit=5,
        start_after_ms=FAR,
        end_before_ms=FAR + 600_000,
        attempts=3,
        job_id="k",
        missed_fires={"kind": "fire-all", "max_catchup": 7},
    )
    stored = spec(db, keys, "k")
    assert (stored.limit, stored.start_after_ms, stored.end_before_ms) == (5, FAR, FAR + 600_000)
    assert stored.missed_fires == MissedFiresPolicy.fire_all(7)
    assert stored.retry == RetryOverride(3)
    assert score(db, keys, "k") == FAR + 60_000


def test_an_upsert_replaces_what_has_its_key_and_keeps_its_count(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    twin.upsert_repeatable_job("n", 1, repeat=EVERY, job_id="k")
    db.hset(keys.spec("k"), "fired", 4)
    twin.upsert_repeatable_job("n", 2, repeat=RepeatPattern.every(5_000_000), job_id="k")
    assert decode_payload(spec(db, keys, "k").payload) == 2
    assert score(db, keys, "k") > now_ms() + 4_000_000
    [meta] = twin.get_repeatable_jobs()
    assert meta.fired == 4


def test_a_job_can_have_several_patterns(twin: BlockingQueue, db: redis.Redis, keys: Keys) -> None:
    for repeat in (EVERY, RepeatPattern.every(5), RepeatPattern.cron("@daily")):
        twin.upsert_repeatable_job("n", 1, repeat=repeat)
    twin.upsert_repeatable_job("n", 1, repeat=EVERY)
    assert db.zcard(keys.repeat) == 3


# ── listing ──────────────────────────────────────────────────────────────────


def test_repeatable_jobs_are_listed_in_the_order_of_their_next_fires(twin: BlockingQueue) -> None:
    twin.upsert_repeatable_job("late", 1, repeat=RepeatPattern.every(9_000_000), job_id="a")
    twin.upsert_repeatable_job("soon", 1, repeat=EVERY, job_id="b", limit=3)
    soon, late = twin.get_repeatable_jobs()
    assert (soon.key, soon.job_name, soon.pattern, soon.limit) == ("b", "soon", EVERY, 3)
    assert (late.key, late.missed_fires, late.fired) == ("a", None, 0)
    assert soon.next_fire_ms < late.next_fire_ms
    assert [meta.key for meta in twin.get_repeatable_jobs(limit=1)] == ["b"]
    assert twin.get_repeatable_jobs(limit=0) == []


def test_a_new_queue_has_no_repeatable_jobs(twin: BlockingQueue, db: redis.Redis) -> None:
    assert twin.get_repeatable_jobs() == []
    assert db.dbsize() == 0


def test_a_spec_that_cannot_be_read_is_left_out_of_the_list(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    twin.upsert_repeatable_job("n", 1, repeat=EVERY, job_id="good")
    db.zadd(keys.repeat, {b"gone": 1, b"bad": 2, b"other": 3, b"\xff": 4})
    db.hset(keys.spec("bad"), "spec", b"\x90")
    db.set(keys.spec("other"), "a string")
    assert [meta.key for meta in twin.get_repeatable_jobs()] == ["good"]


# ── removing ─────────────────────────────────────────────────────────────────


def test_a_removed_repeatable_job_leaves_no_keys(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    job = twin.upsert_repeatable_job("n", 1, repeat=EVERY)
    assert twin.remove_repeatable_by_key(job.id) is True
    assert twin.remove_repeatable_by_key(job.id) is False
    assert set(db.keys()) == {keys.requests.encode()}


def test_removing_a_repeatable_job_keeps_the_others(twin: BlockingQueue) -> None:
    for key in "abc":
        twin.upsert_repeatable_job("n", 1, repeat=EVERY, job_id=key)
    twin.remove_repeatable_by_key("b")
    assert sorted(meta.key for meta in twin.get_repeatable_jobs()) == ["a", "c"]


# ── what goes wrong ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "options",
    [
        {"repeat": {"kind": "every", "interval_ms": 0}},
        {"repeat": {"kind": "hourly"}},
        {"repeat": "0 2 * * *"},
        {"repeat": RepeatPattern.cron("not a cron")},
        {"repeat": RepeatPattern.cron("61 * * * *")},
        {"repeat": RepeatPattern.cron("* * * *")},
        {"repeat": RepeatPattern.cron("0 0 30 2 *")},
        {"repeat": RepeatPattern.cron("0 0 * * *", tz="Mars/Olympus")},
        {"repeat": EVERY, "limit": -1},
        {"repeat": EVERY, "limit": 1.5},
        {"repeat": EVERY, "start_after_ms": -1},
        {"repeat": EVERY, "start_after_ms": True},
        {"repeat": EVERY, "end_before_ms": 5},
        {"repeat": EVERY, "end_before_ms": 2**64},
        {"repeat": EVERY, "missed_fires": {"kind": "fire-all"}},
        {"repeat": EVERY, "missed_fires": {"kind": "fire-all", "max_catchup": 0}},
        {"repeat": EVERY, "missed_fires": {"kind": "never"}},
        {"repeat": EVERY, "job_id": " "},
        {"repeat": EVERY, "job_id": b"k"},
        {"repeat": EVERY, "attempts": -1},
        {"repeat": EVERY, "backoff": "x"},
    ],
)
def test_invalid_options_are_refused_and_replace_nothing(
    twin: BlockingQueue, db: redis.Redis, options: dict[str, Any]
) -> None:
    twin.upsert_repeatable_job("n", 1, repeat=EVERY)
    before = at_rest(db)
    with pytest.raises(LocalProtocolError):
        twin.upsert_repeatable_job("n", 2, **options)
    assert at_rest(db) == before


def test_a_window_that_is_over_before_the_first_fire_is_refused(twin: BlockingQueue) -> None:
    with pytest.raises(InvalidValue, match="end_before_ms must be not before the first fire"):
        twin.upsert_repeatable_job(
            "n", 1, repeat=EVERY, start_after_ms=FAR, end_before_ms=FAR + 59_999
        )
    twin.upsert_repeatable_job("n", 1, repeat=EVERY, start_after_ms=FAR, end_before_ms=FAR + 60_000)


def test_a_pattern_that_never_fires_is_refused(twin: BlockingQueue) -> None:
    for expression in ("0 0 30 2 *", "0 0 0 1 1 * 1999"):
        with pytest.raises((InvalidValue, InvalidFormat)):
            twin.upsert_repeatable_job("n", 1, repeat=RepeatPattern.cron(expression))


def test_retry_options_of_repeatable_jobs_are_refused_in_the_engine_dialect(
    connect: Connect, db: redis.Redis
) -> None:
    engine = connect(dialect="engine")
    with pytest.raises(InvalidValue, match="engine's dialect"):
        engine.upsert_repeatable_job("n", 1, repeat=EVERY, attempts=3)
    assert db.dbsize() == 0
    engine.upsert_repeatable_job("n", 1, repeat=EVERY)
