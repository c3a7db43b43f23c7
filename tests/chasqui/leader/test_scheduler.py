"""The scheduler fires repeatable jobs, on real servers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import redis

from tambomq.chasqui import BackoffSpec, BlockingQueue, MissedFiresPolicy, Queue, RepeatPattern
from tambomq.chasqui.job import RetryOverride
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.leader import FIRES
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member
from tambomq.chasqui.wire.repeat import encode_spec
from tambomq.clock import now_ms
from tambomq.errors import WrongType
from tests.chasqui.leading import (
    Clock,
    calls_made,
    emitted_events,
    entries,
    every,
    fired,
    letters,
    members,
    on_each_server,
    promoter,
    put_spec,
    running,
    scheduler,
    waiting,
)
from tests.chasqui.vectors import Vector, vectors
from tests.servers import Server, eventually_async

NOW = 1_800_000_000_000
MINUTE = 60_000
BODY: list[Any] = ["k", "tick", {"Every": [MINUTE]}, b"\xc4\x01\x01", None, None, None, 0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, NOW)


async def turn(server: Server, keys: Keys, **config: Any) -> float:
    async with scheduler(server.url, keys, **config) as leader:
        return await leader.turn()


def due_at(db: redis.Redis, keys: Keys, key: str = "k") -> float | None:
    return db.zscore(keys.repeat, key)


# ── fires ────────────────────────────────────────────────────────────────────


@on_each_server
@pytest.mark.parametrize("pattern", [RepeatPattern.every(150), RepeatPattern.cron("* * * * * *")])
async def test_a_repeatable_job_fires_again_and_again(
    each_server: Server, keys: Keys, pattern: RepeatPattern
) -> None:
    db = redis.Redis.from_url(each_server.url)
    async with (
        Queue(keys.queue, redis_url=each_server.url) as queue,
        scheduler(each_server.url, keys) as leader,
        running(leader),
    ):
        job = await queue.add("tick", {"a": 1}, repeat=pattern)
        await eventually_async(lambda: fired(db, keys, job.id) >= 2)
        [meta] = await queue.get_repeatable_jobs()
        assert meta.fired >= 2
        assert len({id for id, _ in waiting(db, keys)}) >= 2
        assert {name for _, name in waiting(db, keys)} == {"tick"}
        assert emitted_events(db, keys)[:2] == [("waiting", id) for id, _ in waiting(db, keys)[:2]]
        body = entries(db, keys.stream)[0][b"d"]
        assert decode_envelope(body).payload == msgspec.msgpack.encode({"a": 1})
    db.close()


@pytest.mark.parametrize(("interval_ms", "times"), [(50, 20), (200, 8), (500, 4)])
async def test_short_intervals_fire_under_a_long_tick(
    server: Server, db: redis.Redis, keys: Keys, interval_ms: int, times: int
) -> None:
    async with scheduler(server.url, keys, tick_ms=1000) as leader, running(leader):
        start = now_ms()
        put_spec(db, keys, every(interval_ms), start + interval_ms, "k")
        await eventually_async(lambda: fired(db, keys) >= times, within_s=10)
        assert fired(db, keys) <= (now_ms() - start) // interval_ms


async def test_the_scheduler_sleeps_until_the_next_fire_but_never_longer_than_a_tick(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    async with scheduler(server.url, keys, tick_ms=1000) as leader:
        assert await leader.turn() == 1.0
        put_spec(db, keys, every(key="late"), NOW + MINUTE, "late")
        assert await leader.turn() == 1.0
        put_spec(db, keys, every(200, key="soon"), NOW + 200, "soon")
        assert await leader.turn() == 0.2


async def test_a_spec_that_is_not_due_does_not_fire(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    put_spec(db, keys, every(), NOW + 1, "k")
    await turn(server, keys)
    assert (db.xlen(keys.stream), due_at(db, keys)) == (0, NOW + 1)


async def test_a_job_that_recurs_keeps_its_options_for_retries(
    server: Server, db: redis.Redis, keys: Keys, blocking: BlockingQueue
) -> None:
    backoff = BackoffSpec.fixed(7)
    job = blocking.add("tick", 1, repeat=RepeatPattern.every(10), attempts=3, backoff=backoff)
    db.zadd(keys.repeat, {job.id: now_ms()})
    await turn(server, keys)
    [fields] = entries(db, keys.stream)
    assert decode_envelope(fields[b"d"]).retry == RetryOverride(3, backoff)


async def test_two_schedulers_fire_each_time_once(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    async with (
        scheduler(server.url, keys, holder="tambo-a") as first,
        scheduler(server.url, keys, holder="tambo-b") as second,
        running(first),
        running(second),
    ):
        put_spec(db, keys, every(20, limit=30), now_ms(), "k")
        await eventually_async(lambda: not db.exists(keys.repeat), within_s=10)
    assert db.xlen(keys.stream) == 30
    assert len({id for id, _ in waiting(db, keys)}) == 30


# ── ends ─────────────────────────────────────────────────────────────────────


async def test_a_spec_that_reaches_its_limit_is_deleted(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    put_spec(db, keys, every(limit=2), NOW, "k")
    await turn(server, keys)
    assert (fired(db, keys), due_at(db, keys)) == (1, NOW + MINUTE)
    clock.now += MINUTE
    await turn(server, keys)
    assert db.xlen(keys.stream) == 2
    assert not db.exists(keys.repeat, keys.spec("k"))


async def test_caught_up_fires_do_not_exceed_the_limit(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    spec = every(limit=3, missed_fires=MissedFiresPolicy.fire_all(100))
    put_spec(db, keys, spec, NOW - 10 * MINUTE, "k")
    await turn(server, keys)
    assert db.xlen(keys.stream) == 3
    assert not db.exists(keys.repeat, keys.spec("k"))


async def test_a_spec_ends_before_the_first_fire_after_its_end(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    put_spec(db, keys, every(end_before_ms=NOW + MINUTE), NOW, "k")
    await turn(server, keys)
    assert due_at(db, keys) == NOW + MINUTE
    clock.now += MINUTE
    await turn(server, keys)
    assert db.xlen(keys.stream) == 2
    assert not db.exists(keys.repeat, keys.spec("k"))


async def test_fires_missed_without_a_scheduler_are_caught_up_to_the_end_of_the_spec(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    policy = MissedFiresPolicy.fire_all(100)
    spec = every(end_before_ms=NOW - 8 * MINUTE, missed_fires=policy)
    put_spec(db, keys, spec, NOW - 10 * MINUTE, "k")
    await turn(server, keys)
    assert db.xlen(keys.stream) == 3
    assert not db.exists(keys.repeat, keys.spec("k"))


async def test_nothing_fires_before_its_start(
    server: Server, db: redis.Redis, keys: Keys, blocking: BlockingQueue
) -> None:
    start = now_ms() + MINUTE
    blocking.upsert_repeatable_job(
        "tick", 1, repeat=RepeatPattern.every(100), start_after_ms=start, job_id="k"
    )
    assert due_at(db, keys) == start + 100
    await turn(server, keys)
    assert (db.xlen(keys.stream), due_at(db, keys)) == (0, start + 100)


async def test_a_spec_whose_pattern_ends_is_deleted(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    once = RepeatSpec("k", "tick", RepeatPattern.cron("0 0 0 1 1 * 2027"), b"\x01")
    put_spec(db, keys, once, NOW, "k")
    await turn(server, keys)
    assert db.xlen(keys.stream) == 1
    assert not db.exists(keys.repeat, keys.spec("k"))


# ── missed fires ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("recorded", vectors("missed_fires/"))
async def test_missed_fires_are_caught_up_as_the_engine_does(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock, recorded: Vector
) -> None:
    given, found = recorded.inputs, recorded.recorded
    assert given["now_ms"] == NOW
    spec = every(given["interval_ms"], missed_fires=MissedFiresPolicy(**given["policy"]))
    put_spec(db, keys, spec, given["old_score"], "k")
    await turn(server, keys)
    assert db.xlen(keys.stream) == found["entries_written"]
    assert (fired(db, keys), due_at(db, keys)) == (
        int(found["fired_hash_field"]),
        found["new_score"],
    )


async def test_missed_fires_are_skipped_by_default(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    put_spec(db, keys, every(10_000), NOW - 65_000, "k")
    await turn(server, keys)
    assert (db.xlen(keys.stream), due_at(db, keys)) == (0, NOW + 5_000)
    assert not db.hexists(keys.spec("k"), "fired")


@pytest.mark.parametrize("score", ["-inf", -5, 7.9])
async def test_a_spec_with_an_odd_score_fires_all_the_same(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock, score: float
) -> None:
    put_spec(db, keys, every(missed_fires=MissedFiresPolicy.fire_once()), NOW, "k")
    db.zadd(keys.repeat, {"k": score})
    await turn(server, keys)
    assert db.xlen(keys.stream) == 1
    assert NOW < (due_at(db, keys) or 0) <= NOW + MINUTE


async def test_more_missed_fires_than_one_script_makes_are_all_made_once(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    many = 2 * FIRES + 7
    spec = every(1000, missed_fires=MissedFiresPolicy.fire_all(10_000))
    put_spec(db, keys, spec, NOW - (many - 1) * 1000, "k")
    await turn(server, keys)
    assert (fired(db, keys), due_at(db, keys)) == (many, NOW + 1000)
    assert len({id for id, _ in waiting(db, keys)}) == many


async def test_missed_fires_of_a_large_job_are_made_a_few_at_a_time(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    policy = MissedFiresPolicy.fire_all(100)
    spec = RepeatSpec("k", "big", RepeatPattern.every(1000), b"x" * 400_000, missed_fires=policy)
    put_spec(db, keys, spec, NOW - 10_000, "k")
    db.config_resetstat()
    await turn(server, keys)
    assert (fired(db, keys), db.xlen(keys.stream), due_at(db, keys)) == (11, 11, NOW + 1000)
    assert calls_made(db) > 3 + 3


# ── poison ───────────────────────────────────────────────────────────────────


def cron(expression: str, tz: str | None = None) -> bytes:
    return encode_spec(RepeatSpec("k", "tick", RepeatPattern.cron(expression, tz=tz), b"\x01"))


DEAD = {
    "garbage": b"\xc1garbage",
    "text": b"\xa5hello",
    "eleven elements": msgspec.msgpack.encode([*BODY, "Skip", None, 1]),
    "no interval": msgspec.msgpack.encode([*BODY[:2], {"Every": [0]}, *BODY[3:]]),
    "payload wrapped once": msgspec.msgpack.encode([*BODY[:3], b"\x01", *BODY[4:]]),
    "bad cron": cron("61 * * * *"),
    "name too long": encode_spec(RepeatSpec("k", "x" * 257, RepeatPattern.every(NOW), b"\x01")),
}


@pytest.mark.parametrize("body", DEAD.values(), ids=DEAD)
async def test_an_unreadable_spec_is_dead_lettered_with_a_reason_and_stops_no_other(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock, body: bytes
) -> None:
    put_spec(db, keys, body, 0, "dead")
    put_spec(db, keys, every(), NOW, "k")
    await turn(server, keys)
    [(buried, reason, detail)] = letters(db, keys)
    assert (buried, reason) == (body, "malformed")
    assert detail.startswith("repeat spec: ")
    assert entries(db, keys.dlq)[0][b"source_id"] == b"dead"
    assert db.xlen(keys.stream) == 1
    assert db.zrange(keys.repeat, 0, -1) == [b"k"]
    assert not db.exists(keys.spec("dead"))
    assert [name for name, _ in emitted_events(db, keys)] == ["dlq", "waiting"]


async def test_a_spec_of_a_newer_engine_is_read(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    retry = [4, None]
    put_spec(db, keys, msgspec.msgpack.encode([*BODY, "Skip", retry]), NOW, "k")
    await turn(server, keys)
    [fields] = entries(db, keys.stream)
    assert decode_envelope(fields[b"d"]).retry == RetryOverride(4)


@pytest.mark.parametrize("key", [b"gone", b"\xff no text"])
async def test_a_key_without_a_spec_is_deleted(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock, key: bytes
) -> None:
    db.zadd(keys.repeat, {key: 1})
    put_spec(db, keys, every(), NOW, "k")
    await turn(server, keys)
    assert db.zrange(keys.repeat, 0, -1) == [b"k"]
    assert (db.xlen(keys.stream), db.xlen(keys.dlq)) == (1, 0)


async def test_a_spec_with_an_unknown_time_zone_is_postponed_by_a_minute(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    put_spec(db, keys, cron("* * * * *", "Mars/Olympus"), NOW, "k")
    put_spec(db, keys, every(), NOW, "other")
    await turn(server, keys)
    assert due_at(db, keys) == NOW + MINUTE
    assert db.hexists(keys.spec("k"), "spec")
    assert (db.xlen(keys.stream), db.xlen(keys.dlq)) == (1, 0)


async def test_a_spec_of_another_type_is_postponed_by_a_minute(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    db.set(keys.spec("k"), "not a hash")
    db.zadd(keys.repeat, {"k": 1})
    put_spec(db, keys, every(), NOW, "other")
    await turn(server, keys)
    assert due_at(db, keys) == NOW + MINUTE
    assert db.xlen(keys.stream) == 1


@pytest.mark.parametrize("count", ["garbage", "1.5", ""])
async def test_a_damaged_counter_does_not_repeat_a_fire(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock, count: str
) -> None:
    put_spec(db, keys, every(limit=9), NOW, "k")
    db.hset(keys.spec("k"), "fired", count)
    for _ in range(3):
        await turn(server, keys)
    assert (db.xlen(keys.stream), due_at(db, keys)) == (1, NOW + MINUTE)
    assert fired(db, keys) in (1, 2)


@pytest.mark.parametrize("which", ["repeat", "stream", "delayed", "scheduler_lock"])
async def test_the_scheduler_continues_once_a_key_of_another_type_is_deleted(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock, which: str
) -> None:
    if which != "repeat":
        put_spec(db, keys, every(), NOW, "k")
    wrong = getattr(keys, which)
    db.hset(wrong, "not", "ours")
    async with scheduler(server.url, keys) as leader:
        with pytest.raises(WrongType):
            await leader.turn()
        db.delete(wrong)
        put_spec(db, keys, every(), NOW, "k")
        await leader.turn()
    assert (db.xlen(keys.stream), fired(db, keys)) == (1, 1)


# ── a full stream ────────────────────────────────────────────────────────────


async def test_a_fire_into_a_full_stream_is_delayed_and_promoted_later(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    spec = every(missed_fires=MissedFiresPolicy.fire_all(9))
    put_spec(db, keys, spec, NOW - 2 * MINUTE, "k")
    await turn(server, keys, cap=1)
    assert (db.xlen(keys.stream), fired(db, keys), due_at(db, keys)) == (1, 3, NOW + MINUTE)
    late = members(db, keys)
    assert [decode_member(each)[0] for each in late] == ["tick", "tick"]
    ids = {decode_envelope(decode_member(each)[1]).id for each in late}
    ids |= {id for id, _ in waiting(db, keys)}
    db.zadd(keys.delayed, dict.fromkeys(late, 1))
    async with promoter(server.url, keys) as leader:
        await leader.turn()
    assert {id for id, _ in waiting(db, keys)} == ids
    assert len(ids) == 3
