"""The promoter moves due jobs to the stream, on real servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Queue
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.leader.promoter import TICK_MS
from tambomq.chasqui.ops.leader import BATCH
from tambomq.clock import now_ms
from tambomq.errors import WrongType
from tests.chasqui.leading import (
    LONG_AGO,
    emitted_events,
    entries,
    envelope,
    letters,
    member,
    members,
    on_each_server,
    promoter,
    rows,
    running,
    waiting,
)
from tests.servers import Server, eventually_async

TICK_S = TICK_MS / 1000
BAD = "bad delayed member"


@on_each_server
@pytest.mark.parametrize("dialect", ["page", "engine"])
async def test_a_delayed_job_waits_for_a_worker_when_it_is_due(
    each_server: Server, keys: Keys, dialect: str
) -> None:
    db = redis.Redis.from_url(each_server.url)
    async with (
        Queue(keys.queue, redis_url=each_server.url, dialect=dialect) as queue,
        promoter(each_server.url, keys) as leader,
        running(leader),
    ):
        soon = await queue.add("soon", 1, delay_ms=60)
        await queue.add("late", 2, delay_ms=60_000)
        due_ms = soon.created_at_ms + 60
        await eventually_async(lambda: waiting(db, keys) == [(soon.id, "soon")])
        ((entry, _),) = rows(db, keys.stream)
        assert int(entry.split(b"-")[0]) >= due_ms
        assert db.zcard(keys.delayed) == 1
    db.close()


@on_each_server
async def test_members_of_both_dialects_are_promoted_in_the_order_they_are_due(
    each_server: Server, keys: Keys
) -> None:
    with redis.Redis.from_url(each_server.url) as db:
        several = [member("a", "page"), member("b", "engine", "engine")]
        several += [member("c"), member("d", "", "engine"), member("e", "ünï", "engine")]
        db.zadd(keys.delayed, {each: place for place, each in enumerate(several)})
        async with promoter(each_server.url, keys) as leader:
            await leader.turn()
        assert waiting(db, keys) == [
            *(("a", "page"), ("b", "engine"), ("c", ""), ("d", ""), ("e", "ünï"))
        ]
        assert emitted_events(db, keys) == [("waiting", id) for id in "abcde"]
        assert not db.exists(keys.delayed)


async def test_a_job_has_the_envelope_and_the_name_it_was_delayed_with(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    db.zadd(keys.delayed, {member("a", "x" * 255): 1, member("b", "y" * 256, "engine"): 2})
    db.zadd(keys.delayed, {member("c"): 3})
    async with promoter(server.url, keys) as leader:
        await leader.turn()
    assert entries(db, keys.stream) == [
        {b"d": envelope("a"), b"n": b"x" * 255},
        {b"d": envelope("b"), b"n": b"y" * 256},
        {b"d": envelope("c")},
    ]
    assert [fields.get(b"n") for fields in entries(db, keys.events)] == [
        *(b"x" * 255, b"y" * 256, None)
    ]


async def test_promotion_deletes_the_index_and_keeps_the_id_reserved(
    server: Server, db: redis.Redis, keys: Keys, blocking: BlockingQueue
) -> None:
    blocking.add("n", 1, job_id="mine", delay_ms=3_000)
    [delayed] = members(db, keys)
    db.zadd(keys.delayed, {delayed: LONG_AGO})
    async with promoter(server.url, keys) as leader, running(leader):
        await eventually_async(lambda: not db.exists(keys.index("mine")))
    assert db.get(keys.marker("mine")) == b"1"
    assert 3_590 < db.ttl(keys.marker("mine")) <= 3_603
    assert waiting(db, keys) == [("mine", "n")]
    assert not blocking.cancel_delayed("mine")
    blocking.add("n", 1, job_id="mine", delay_ms=3_000)
    assert not db.exists(keys.delayed)


POISON = [
    *(b"", b"\0", b"\x05ab", b"\x03\0\0", b"\xff\xff\xff"),
    *(b"\x07\0\0\0", b"\xff" * 9, b"\xfe\xff\xff\xff\x94", b"\xc8no such length"),
]


@on_each_server
async def test_unreadable_members_are_dead_lettered_and_block_nothing(
    each_server: Server, keys: Keys
) -> None:
    with redis.Redis.from_url(each_server.url) as db:
        db.zadd(keys.delayed, {poison: place for place, poison in enumerate(POISON)})
        db.zadd(keys.delayed, {member("first"): -1, member("last", "n"): 99})
        async with promoter(each_server.url, keys) as leader:
            await leader.turn()
        assert letters(db, keys) == [(poison, "malformed", BAD) for poison in POISON]
        assert [fields[b"source_id"] for fields in entries(db, keys.dlq)] == [b""] * len(POISON)
        assert waiting(db, keys) == [("first", ""), ("last", "n")]
        dead = [("dlq", "")] * len(POISON)
        assert emitted_events(db, keys) == [("waiting", "first"), *dead, ("waiting", "last")]
        assert not db.exists(keys.delayed)


async def test_a_batch_of_unreadable_members_does_not_stop_promotion(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    db.zadd(keys.delayed, {b"\xff" + b"%d" % n: LONG_AGO for n in range(BATCH + 10)})
    db.zadd(keys.delayed, {member("a"): LONG_AGO + 1})
    async with promoter(server.url, keys) as leader, running(leader):
        await eventually_async(lambda: waiting(db, keys) == [("a", "")])
    assert db.xlen(keys.dlq) == BATCH + 10


async def test_garbage_with_a_prefix_is_left_to_the_workers(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    db.zadd(keys.delayed, {b"\0no envelope": 1, b"\0\x94\xc1": 2, b"\0\x94\xd9\xff": 3})
    async with promoter(server.url, keys) as leader:
        await leader.turn()
    bodies = [fields[b"d"] for fields in entries(db, keys.stream)]
    assert bodies == [b"no envelope", b"\x94\xc1", b"\x94\xd9\xff"]
    assert emitted_events(db, keys) == [("waiting", "")] * 3


async def test_dead_letters_trimmed_beyond_their_cap_emit_an_event(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    db.zadd(keys.delayed, {b"\xff%d" % n: LONG_AGO for n in range(250)})
    async with promoter(server.url, keys, dlq_cap=1, batch=250) as leader:
        await leader.turn()
    *_, last = entries(db, keys.events)
    assert (last[b"e"], last[b"reason"]) == (b"trimmed", b"dlq")
    # A stream is cut by whole nodes, so some beyond the cap stay.
    assert int(last[b"count"]) > 0
    assert int(last[b"count"]) + db.xlen(keys.dlq) == 250


async def test_a_full_stream_lets_jobs_wait_and_loses_none(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    ids = [f"{n:02}" for n in range(20)]
    db.zadd(keys.delayed, {member(id): place for place, id in enumerate(ids)})
    seen: list[str] = []

    def take() -> bool:
        found = rows(db, keys.stream)
        assert len(found) <= 3
        seen.extend(id for id, _ in waiting(db, keys))
        for entry, _ in found:
            db.xdel(keys.stream, entry)
        return len(seen) == 20

    async with promoter(server.url, keys, cap=3) as leader, running(leader):
        await eventually_async(take, within_s=10)
    assert seen == ids


async def test_while_the_stream_is_full_the_promoter_polls_once_a_tick(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    db.zadd(keys.delayed, {member("a"): 1, member("b"): 2})
    async with promoter(server.url, keys, cap=1) as leader:
        assert await leader.turn() == 0
        assert await leader.turn() == TICK_S
        assert members(db, keys) == [member("b")]
        db.xtrim(keys.stream, 0)
        assert await leader.turn() == 0
    assert waiting(db, keys) == [("b", "")]


async def test_large_jobs_are_promoted_a_few_at_a_time(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    for n in range(20):
        db.zadd(keys.delayed, {b"\0" + envelope(f"{n:02}", b"x" * 500_000): n})
    async with promoter(server.url, keys) as leader:
        assert await leader.turn() == 0
        assert 0 < db.xlen(keys.stream) < 20
        async with running(leader):
            await eventually_async(lambda: db.xlen(keys.stream) == 20)
    assert [id for id, _ in waiting(db, keys)] == [f"{n:02}" for n in range(20)]


async def test_the_promoter_sleeps_until_the_next_job_is_due_but_never_long(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    async with promoter(server.url, keys) as leader:
        assert await leader.turn() == TICK_S
        db.zadd(keys.delayed, {member("late"): now_ms() + 60_000})
        assert await leader.turn() == TICK_S
        db.zadd(keys.delayed, {member("soon"): now_ms() + 50})
        assert 0 <= await leader.turn() <= 0.05
        db.delete(keys.delayed)
        db.zadd(keys.delayed, {member("never"): "inf"})
        assert await leader.turn() == TICK_S


async def test_a_score_below_all_times_is_due(server: Server, db: redis.Redis, keys: Keys) -> None:
    db.zadd(keys.delayed, {member("a"): "-inf", member("b"): -5.5})
    async with promoter(server.url, keys) as leader:
        await leader.turn()
    assert waiting(db, keys) == [("a", ""), ("b", "")]


async def test_the_server_s_clock_decides_what_is_due(
    server: Server, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 10**18 * 3)
    db.zadd(keys.delayed, {member("a"): int(db.time()[0] + 60) * 1000})
    async with promoter(server.url, keys) as leader:
        await leader.turn()
    assert db.zcard(keys.delayed) == 1


async def test_no_events_are_written_if_they_are_disabled(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    db.zadd(keys.delayed, {member("a"): 1, b"": 2})
    async with promoter(server.url, keys, events_cap=0) as leader:
        await leader.turn()
    assert not db.exists(keys.events)
    assert (db.xlen(keys.stream), db.xlen(keys.dlq)) == (1, 1)


@pytest.mark.parametrize("which", ["delayed", "stream", "promoter_lock"])
async def test_the_promoter_continues_once_a_key_of_another_type_is_deleted(
    server: Server, db: redis.Redis, keys: Keys, which: str
) -> None:
    wrong = getattr(keys, which)
    db.hset(wrong, "not", "ours")
    async with promoter(server.url, keys) as leader:
        with pytest.raises(WrongType):
            await leader.turn()
        async with running(leader):
            db.delete(wrong)
            db.zadd(keys.delayed, {member("a"): 1, member("b"): 2})
            await eventually_async(lambda: waiting(db, keys) == [("a", ""), ("b", "")])


async def test_events_of_a_wrong_type_stop_nothing(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    db.hset(keys.events, "not", "ours")
    db.zadd(keys.delayed, {member("a"): 1, b"": 2, member("b"): 3})
    async with promoter(server.url, keys) as leader:
        await leader.turn()
    assert waiting(db, keys) == [("a", ""), ("b", "")]
    assert db.xlen(keys.dlq) == 1


async def test_a_record_of_previous_jobs_of_another_type_promotes_no_job_twice(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.previous, "not ours")
    db.zadd(keys.delayed, {member("a"): 1, member("b"): 2})
    async with promoter(server.url, keys) as leader:
        for _ in range(2):
            await leader.turn()
    assert waiting(db, keys) == [("a", ""), ("b", "")]
    assert members(db, keys) == []


async def test_a_dead_letter_key_of_another_type_holds_up_only_unreadable_members(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    db.hset(keys.dlq, "not", "ours")
    db.zadd(keys.delayed, {member("a"): 1, b"": 2, member("b"): 3})
    async with promoter(server.url, keys) as leader:
        for _ in range(3):
            await leader.turn()
        assert waiting(db, keys) == [("a", ""), ("b", "")]
        assert members(db, keys) == [b""]
        assert float(db.zscore(keys.delayed, b"") or 0) > now_ms() + 30_000
        db.delete(keys.dlq)
        db.zadd(keys.delayed, {b"": 1})
        await leader.turn()
    assert letters(db, keys) == [(b"", "malformed", BAD)]


@on_each_server
async def test_many_jobs_that_are_due_at_once_are_all_promoted(
    each_server: Server, keys: Keys, record_property: Callable[[str, object], None]
) -> None:
    jobs = 20_000
    with redis.Redis.from_url(each_server.url) as db:
        db.slowlog_reset()
        for first in range(0, jobs, 1000):
            page = range(first, first + 1000)
            db.zadd(keys.delayed, {member(f"j{n}", "n"): LONG_AGO for n in page})
        async with promoter(each_server.url, keys) as leader, running(leader):
            await eventually_async(lambda: db.xlen(keys.stream) == jobs, within_s=30)
        slow = db.slowlog_len()
        # The speed of the machine is shown, not asserted.
        record_property("commands above 10 ms", slow)
        assert {id for id, _ in waiting(db, keys)} == {f"j{n}" for n in range(jobs)}
        assert not db.exists(keys.delayed)
