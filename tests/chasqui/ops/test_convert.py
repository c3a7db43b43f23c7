"""The default dialect of delayed jobs: one that every participant of the queue can read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Queue, RepeatPattern
from tambomq.chasqui.bulk import sink as sink_ops
from tambomq.chasqui.bulk.move import InboundJob, put
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import convert as convert_ops
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.wire.envelope import dialect_of
from tambomq.clock import now_ms
from tambomq.errors import InvalidValue, StoreUnavailable
from tambomq.store.sync import Store
from tests.chasqui.conftest import Connect, Work
from tests.chasqui.leading import LONG_AGO, envelope, member, members, promoter, waiting
from tests.servers import Server, eventually_async

HOUR = 3_600_000
SIGNS = ("promoter's lock", "scheduler's lock", "consumer", "consumer of another group", "member")


def show(db: redis.Redis, keys: Keys, sign: str) -> None:
    """Store in a queue the keys that a released engine leaves there."""
    if sign == "promoter's lock":
        db.set(keys.promoter_lock, "c-0b1c")
    elif sign == "scheduler's lock":
        db.set(keys.scheduler_lock, "s-0b1c")
    elif sign == "member":
        db.zadd(keys.delayed, {member("theirs", "n", "engine"): now_ms() + 2 * HOUR})
    else:
        group = GROUP if sign == "consumer" else "g2"
        db.xgroup_create(keys.stream, group, mkstream=True)
        db.xgroup_createconsumer(keys.stream, group, "c-0b1c")


def dialects(db: redis.Redis, keys: Keys) -> list[str | None]:
    return [dialect_of(each) for each in members(db, keys)]


def test_a_queue_without_a_released_engine_has_the_page_dialect(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.promoter_lock, "tambo-c-1")
    db.xgroup_create(keys.stream, GROUP, mkstream=True)
    for consumer in ("tambo-1", "spark-query", "tambo-returned"):
        db.xgroup_createconsumer(keys.stream, GROUP, consumer)
    twin.add("n", 1, delay_ms=HOUR)
    twin.add_bulk([{"name": "n", "data": 1, "delay_ms": HOUR, "job_id": "a"}])
    assert dialects(db, keys) == ["page"] * 2
    assert db.get(keys.index("a")) in members(db, keys)


@pytest.mark.parametrize("sign", SIGNS)
def test_every_sign_of_the_engine_asks_for_its_dialect(
    twin: BlockingQueue, db: redis.Redis, keys: Keys, sign: str
) -> None:
    show(db, keys, sign)
    twin.add("n", 1, delay_ms=HOUR)
    twin.add_bulk([{"name": "n", "data": 1, "delay_ms": HOUR, "job_id": "a"}])
    assert set(dialects(db, keys)) == {"engine"}
    assert db.get(keys.index("a")) in members(db, keys)
    assert twin.cancel_delayed("a")


@pytest.mark.parametrize("sign", SIGNS)
def test_sinks_and_moves_see_the_same_signs(
    store: Store, db: redis.Redis, keys: Keys, sign: str
) -> None:
    policy, now = Policy(), now_ms()

    def add(token: str) -> None:
        drafts = [add_ops.draft(policy, now, "n", b"\x01", run_at_ms=now + HOUR) for _ in range(2)]
        store.run(sink_ops.add(keys, policy, "query", (0, token, token, 60), drafts))
        inbound = [InboundJob(id, "m", envelope(id), now + HOUR, HOUR) for id in ("a", "b")]
        store.run(put(keys, policy, "move", int(token), "", now, inbound))
        assert db.get(keys.index("a")) in members(db, keys)

    add("1")
    assert dialects(db, keys) == ["page"] * 4
    db.delete(keys.delayed)
    show(db, keys, sign)
    add("2")
    assert set(dialects(db, keys)) == {"engine"}


def test_a_name_that_the_page_cannot_hold_is_stored_as_the_engine_does(
    twin: BlockingQueue, store: Store, db: redis.Redis, keys: Keys
) -> None:
    now = now_ms()
    for n, name in enumerate(("n" * 256, "\0n")):
        twin.add(name, 1, delay_ms=HOUR)
        assert dialects(db, keys) == ["engine"]
        drafts = [add_ops.draft(Policy(), now, name, b"\x01", run_at_ms=now + HOUR)]
        db.delete(keys.delayed)
        store.run(sink_ops.add(keys, Policy(), "query", (0, str(n), "digest", 60), drafts))
        assert dialects(db, keys) == ["engine"]
        db.delete(keys.delayed)


def test_one_engine_consumer_among_many_selects_the_engine_dialect(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    db.xgroup_create(keys.stream, GROUP, mkstream=True)
    for n in range(40):
        db.xgroup_createconsumer(keys.stream, GROUP, f"tambo-{n}")
    twin.add("n", 1, delay_ms=HOUR)
    twin.add("n", 2, delay_ms=HOUR)
    assert dialects(db, keys) == ["page"] * 2
    # The result is cached for a second, unless the number of consumers changes.
    db.xgroup_createconsumer(keys.stream, GROUP, "c-0b1c")
    twin.add("n", 3, delay_ms=HOUR)
    assert dialects(db, keys) == ["engine"] * 3


@pytest.mark.parametrize("consumer_id", [None, "mine"])
async def test_our_own_workers_are_not_taken_for_an_engine(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, consumer_id: str | None
) -> None:
    async def fail(_: Any) -> None:
        raise ValueError("no")

    def consumers() -> list[Any]:
        return db.xinfo_consumers(keys.stream, GROUP) if db.exists(keys.stream) else []

    async with work(fail, consumer_id=consumer_id) as worker:
        await eventually_async(lambda: len(consumers()) == 1)
        await queue.add("n", 1, delay_ms=HOUR)
        await queue.add("n", 1, backoff=HOUR // 60)
        await eventually_async(lambda: worker.stats.retried == 1)
        assert dialects(db, keys) == ["page"] * 2
        # A retry is a delayed job like others.
        db.xgroup_createconsumer(keys.stream, GROUP, "c-0b1c")
        await queue.add("n", 1, backoff=HOUR // 60)
        await eventually_async(lambda: worker.stats.retried == 2)
        await eventually_async(lambda: dialects(db, keys) == ["engine"] * 3)


@pytest.mark.parametrize("sign", SIGNS[:-1])
def test_a_spec_that_the_engine_would_drop_is_refused_beside_it(
    connect: Connect, db: redis.Redis, keys: Keys, sign: str
) -> None:
    auto, every = connect(), RepeatPattern.every(60_000)
    auto.upsert_repeatable_job("n", 1, repeat=every, attempts=3, job_id="before")
    show(db, keys, sign)
    with pytest.raises(InvalidValue, match="released engine shares"):
        auto.upsert_repeatable_job("n", 1, repeat=every, attempts=3, job_id="k")
    with pytest.raises(InvalidValue, match="released engine shares"):
        auto.add_bulk([{"name": "n", "data": 1, "repeat": every, "attempts": 3, "job_id": "k"}])
    assert not db.exists(keys.spec("k"))
    auto.upsert_repeatable_job("n", 1, repeat=every, job_id="k")
    connect(dialect="page").upsert_repeatable_job("n", 1, repeat=every, attempts=3, job_id="k")
    assert db.zcard(keys.repeat) == 2


# ── jobs that were stored before the engine came ─────────────────────────────


def fill(queue: BlockingQueue, count: int) -> None:
    queue.add_bulk(
        [
            {"name": "n" * (n % 3), "data": n, "delay_ms": HOUR + n // 10, "job_id": f"id-{n}"}
            for n in range(count)
        ]
    )


def test_a_producer_that_detects_the_engine_converts_members_it_could_not_read(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    fill(twin, 700)
    db.zadd(keys.delayed, {b"\xff": 5})
    due: Any = db.zrange(keys.delayed, 0, -1, withscores=True)
    show(db, keys, "promoter's lock")
    twin.add("late", 1, delay_ms=2 * HOUR)
    assert dialects(db, keys) == [None, *["engine"] * 701]
    now_due: Any = db.zrange(keys.delayed, 0, -1, withscores=True)
    assert sorted(score for _, score in now_due[:-1]) == sorted(score for _, score in due)
    # They can be cancelled as before, and are looked at once.
    assert twin.cancel_delayed_bulk(["id-0", "id-699"]) == [True, True]
    assert db.ttl(keys.index("id-5")) > 3600
    ours = member("x", "n", "page")
    db.zadd(keys.delayed, {ours: now_ms() + HOUR})
    twin.add("late", 2, delay_ms=2 * HOUR)
    assert ours in members(db, keys)


def test_members_stored_later_in_the_page_dialect_are_converted_too(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    auto, page = connect(), connect(dialect="page")
    show(db, keys, "consumer")
    auto.add("n", 1, delay_ms=HOUR)
    page.add("n", 2, delay_ms=HOUR)
    assert sorted(map(str, dialects(db, keys))) == ["engine", "page"]
    auto.add("n", 3, delay_ms=HOUR)
    assert dialects(db, keys) == ["engine"] * 3


async def test_a_leader_makes_delayed_jobs_readable_before_the_engine_can_lead(
    server: Server, blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    fill(blocking, 300)
    async with promoter(server.url, keys) as leader:
        await leader.turn()
        assert set(dialects(db, keys)) == {"page"}
        show(db, keys, "consumer")
        running = asyncio.create_task(leader.run())
        await eventually_async(lambda: set(dialects(db, keys)) == {"engine"})
        # One that comes in the last moment is saved when the leader leaves.
        db.delete(keys.signs[-1])
        db.zadd(keys.delayed, {member("last", "n", "page"): now_ms() + HOUR})
        leader.close()
        await running
    assert set(dialects(db, keys)) == {"engine"}
    assert not db.exists(keys.promoter_lock)


async def test_without_signs_nothing_is_converted(
    server: Server, blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    blocking.add("n", 1, delay_ms=HOUR)
    db.zadd(keys.delayed, {member("due", "n", "engine"): LONG_AGO})
    async with promoter(server.url, keys) as leader:
        await leader.turn()
        await leader.turn()
    assert waiting(db, keys) == [("due", "n")]
    assert dialects(db, keys) == ["page"]
    assert not db.exists(*keys.signs[2:])


def test_a_conversion_does_not_raise_if_the_server_becomes_unreachable(keys: Keys) -> None:
    plan = convert_ops.convert(keys)
    next(plan)
    plan.send([True])
    with pytest.raises(StopIteration) as ended:
        plan.send([StoreUnavailable("redis://gone")])
    assert ended.value.value == 0
