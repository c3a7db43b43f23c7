"""Jobs that are debounced or throttled by their ids."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job, Queue, Worker
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.add import Policy, draft
from tambomq.chasqui.ops.debounce import debounce, throttle
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.clock import now_ms
from tambomq.errors import ForeignLeader, InvalidFormat, InvalidValue, QueueFull
from tambomq.store.sync import Store
from tests.chasqui.conftest import Connect, Work, working
from tests.chasqui.leading import on_each_server
from tests.chasqui.stored import emitted_events, ids
from tests.servers import Server, eventually_async

HOUR_S = 3600


def delayed(db: redis.Redis, keys: Keys) -> list[tuple[str, Any, float]]:
    """Return name, data and due time of each delayed job."""
    found = cast("list[tuple[bytes, float]]", db.zrange(keys.delayed, 0, -1, withscores=True))
    rows = [(*decode_member(member), due) for member, due in found]
    return [(name, decode_payload(decode_envelope(body).payload), due) for name, body, due in rows]


# ── debounced ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("options", [{}, {"dialect": "engine"}, {"journal": True}])
def test_the_last_of_many_adds_replaces_the_others_and_is_due_later(
    connect: Connect, db: redis.Redis, keys: Keys, options: dict[str, Any]
) -> None:
    queue, other = connect(**options), connect(**options)
    before = now_ms()
    assert queue.add_unique("n", 1, job_id="a", debounce_s=HOUR_S).added is True
    [(_, _, first)] = delayed(db, keys)
    assert before + HOUR_S * 1000 - 1000 <= first <= now_ms() + HOUR_S * 1000 + 1000
    assert other.add_unique("n", 2, job_id="a", debounce_s=HOUR_S).added is False
    assert queue.add_unique("m", 3, job_id="a", debounce_s=2 * HOUR_S, attempts=2).added is False
    [(name, data, last)] = delayed(db, keys)
    assert (name, data) == ("m", 3)
    assert last >= first + HOUR_S * 1000 - 1000
    assert queue.add_unique("n", 1, job_id="b", debounce_s=HOUR_S).added is True
    assert emitted_events(db, keys) == [("delayed", "a")] * 3 + [("delayed", "b")]


@on_each_server
async def test_a_burst_of_adds_runs_once_with_the_last_data(
    each_server: Server, keys: Keys
) -> None:
    seen: list[Any] = []

    async def handle(job: Job) -> None:
        seen.append(job.data)

    async with (
        Queue(keys.queue, redis_url=each_server.url) as queue,
        working(Worker(keys.queue, handle, redis_url=each_server.url)),
    ):
        for n in range(20):
            await queue.add_unique("n", n, job_id="a", debounce_s=HOUR_S)
        await queue.add_unique("n", "last", job_id="a", debounce_s=0.01)
        await eventually_async(lambda: seen == ["last"], within_s=60)
        # The next one begins a new delay, though the id was used a moment ago.
        job = await queue.add_unique("n", "next", job_id="a", debounce_s=0.01)
        assert job.added is True
        await eventually_async(lambda: seen == ["last", "next"], within_s=60)


def test_a_debounced_job_can_be_cancelled_and_debounces_what_was_delayed(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    twin.add("n", 1, job_id="a", delay_ms=HOUR_S * 1000)
    assert twin.add_unique("n", 2, job_id="a", debounce_s=HOUR_S).added is False
    assert twin.add_unique("n", 3, job_id="a", delay_ms=5).added is False
    assert [data for _, data, _ in delayed(db, keys)] == [2]
    assert twin.cancel_delayed("a") is True
    assert twin.add_unique("n", 4, job_id="a", debounce_s=HOUR_S).added is True
    assert twin.cancel_job("a") is True
    assert not delayed(db, keys)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_call_that_is_repeated_after_a_lost_reply_says_the_same_and_does_nothing(
    twin: BlockingQueue, server: Server, db: redis.Redis, keys: Keys, is_first: bool
) -> None:
    if not is_first:
        twin.add_unique("n", 1, job_id="a", debounce_s=HOUR_S)
    policy, store = Policy(), Store(server.url)
    job = draft(policy, now_ms(), "n", b"\x02", job_id="a")
    [call] = next(debounce(keys, policy, job, HOUR_S * 1000))
    assert store.run(call) == (is_first, False)
    db.delete(keys.delayed)  # as if it had been promoted meanwhile
    assert store.run(call) == (is_first, False)
    assert not delayed(db, keys)
    store.close()


def test_an_engine_that_leads_gets_no_job_that_it_cannot_read(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    connect().add_unique("n", 1, job_id="a", debounce_s=HOUR_S)
    db.set(keys.promoter_lock, "c-1")
    with pytest.raises(ForeignLeader):
        connect(dialect="page").add_unique("n", 2, job_id="a", debounce_s=HOUR_S)
    assert connect().add_unique("n", 3, job_id="a", debounce_s=HOUR_S).added is False
    assert [data for _, data, _ in delayed(db, keys)] == [3]


# ── throttled ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("options", [{}, {"dedup": "strict"}, {"journal": True}])
def test_one_of_many_throttled_adds_is_accepted(
    connect: Connect, db: redis.Redis, keys: Keys, options: dict[str, Any]
) -> None:
    one, two = connect(**options), connect(**options)
    added = [each.add_unique("n", 1, job_id="a", throttle_s=HOUR_S).added for each in (one, two)]
    assert added == [True, False]
    one.drain()
    assert one.add_unique("n", 2, job_id="a", throttle_s=HOUR_S).added is False
    assert one.add_unique("n", 2, job_id="b", throttle_s=HOUR_S).added is True
    assert ids(db, keys) == ["b"]
    assert 0 < db.pttl(keys.throttle("a")) <= HOUR_S * 1000


async def test_after_its_time_a_throttled_job_is_added_again(queue: Queue, work: Work) -> None:
    async def handle(job: Job) -> None: ...

    async with work(handle) as worker:

        async def is_added() -> bool:
            job = await queue.add_unique("n", 1, job_id="a", throttle_s=0.05)
            return job.added is True

        await eventually_async(is_added, within_s=60)
        await eventually_async(is_added, within_s=60)
        await eventually_async(lambda: worker.stats.completed == 2, within_s=60)


def test_a_throttled_add_that_a_full_queue_refused_does_not_count(connect: Connect) -> None:
    queue = connect(max_stream_len=1)
    queue.add("n", 1)
    with pytest.raises(QueueFull):
        queue.add_unique("n", 1, job_id="a", throttle_s=HOUR_S)
    queue.drain()
    assert queue.add_unique("n", 1, job_id="a", throttle_s=HOUR_S).added is True


def test_a_throttled_add_that_is_repeated_after_a_lost_reply_says_the_same(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    policy, store = Policy(), Store(server.url)
    job = draft(policy, now_ms(), "n", b"\x02", job_id="a")
    [call] = next(throttle(keys, policy, job, 60_000))
    assert [type(store.run(call)) for _ in range(2)] == [int, int]
    assert db.xlen(keys.stream) == 1
    store.close()


# ── what goes wrong ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, True, "1"])
@pytest.mark.parametrize("option", ["debounce_s", "throttle_s"])
def test_an_invalid_time_is_refused(
    twin: BlockingQueue, db: redis.Redis, option: str, seconds: Any
) -> None:
    with pytest.raises(InvalidValue, match=option):
        twin.add_unique("n", 1, job_id="a", **{option: seconds})
    assert db.dbsize() == 0


@pytest.mark.parametrize(
    "options",
    [
        {"debounce_s": 1, "throttle_s": 1},
        {"debounce_s": 1, "delay_ms": 5},
        {"throttle_s": 1, "delay_ms": 5},
        {"throttle_s": 1, "repeat": {"kind": "every", "interval_ms": 5}},
        {"debounce_s": 2**31},
    ],
)
def test_options_that_contradict_each_other_are_refused(
    twin: BlockingQueue, db: redis.Redis, options: dict[str, Any]
) -> None:
    with pytest.raises((InvalidValue, InvalidFormat)):
        twin.add_unique("n", 1, job_id="a", **options)
    assert db.dbsize() == 0
