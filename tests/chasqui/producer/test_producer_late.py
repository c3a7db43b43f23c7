"""Adds that arrive late at a queue that has filled up meanwhile: none of them drops a job.

On a server with ``XADD … IDMP`` a producer sends the plain command while its last count of the
queue was far below the cap. By the time the command arrives that count may be out of date.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Queue, Worker
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.producer.producer import COUNT_VALID_MS, MIN_FREE, NO_OPTIONS, Producer
from tambomq.errors import QueueFull
from tests.chasqui.conftest import working
from tests.chasqui.stalling import stalling
from tests.chasqui.stored import ids
from tests.servers import Server, eventually_async

NOW = 1_800_000_000_000
CAP = MIN_FREE + 500
UNCHECKED_ADD = b"\r\nIDMP\r\n"
"""Part of the plain command; in the source of a script the word has quotes."""


def producer_with_count(at_ms: int, length: int, cap: int = CAP, **policy: Any) -> Producer:
    """Return a producer whose scripted add at *at_ms* found *length* jobs in the stream."""
    producer = Producer(Keys("q"), Policy(cap, **policy), None)
    plan = producer.add(at_ms, "n", 1, *NO_OPTIONS)
    next(plan)
    plan.send([{"xackdel"}, {"xadd": {"IDMP"}, "xreadgroup": {"CLAIM"}}])
    with pytest.raises(StopIteration):
        plan.send([length])
    return producer


def adds_unchecked(producer: Producer, now_ms: int) -> bool:
    return producer.add_unchecked(now_ms, "n", 1) is not None


# ── the cached count ─────────────────────────────────────────────────────────


def test_a_count_of_free_slots_is_valid_for_200_ms() -> None:
    producer = producer_with_count(NOW, 1)
    assert COUNT_VALID_MS == 200
    assert adds_unchecked(producer, NOW)
    assert adds_unchecked(producer, NOW + 199)
    assert not adds_unchecked(producer, NOW + 200)
    assert not adds_unchecked(producer, NOW + 59_000)
    assert adds_unchecked(producer, NOW + 100), "the count itself stays valid"


def test_a_count_is_not_valid_before_its_own_time() -> None:
    assert not adds_unchecked(producer_with_count(NOW, 1), NOW - 1)


@pytest.mark.parametrize(("length", "unchecked"), [(499, True), (500, False), (CAP, False)])
def test_the_command_is_used_only_far_from_the_bound(length: int, unchecked: bool) -> None:
    assert adds_unchecked(producer_with_count(NOW, length), NOW) is unchecked


@pytest.mark.parametrize("overflow", ["refuse", "trim"])
@pytest.mark.parametrize("name", ["", "named"])
def test_the_command_drops_no_job(overflow: str, name: str) -> None:
    found = producer_with_count(NOW, 1, overflow=overflow).add_unchecked(NOW, name, 1)
    assert found is not None
    packed = found[1].packed or b""
    assert b"IDMP" in packed
    assert b"MAXLEN" not in packed


def test_another_producers_jobs_are_counted_within_a_fifth_of_a_second() -> None:
    """Another producer fills the queue: the next scripted add raises `QueueFull`."""
    producer = producer_with_count(NOW, 1)
    plan = producer.add(NOW + 200, "n", 1, *NO_OPTIONS)
    [call] = next(plan)
    assert call.packed is None, "the call counts on the server"
    with pytest.raises(QueueFull):
        call.decode(-1)


# ── on a server ──────────────────────────────────────────────────────────────


@pytest.fixture
def redis8(running: Callable[[str], Server]) -> Server:
    server = running("redis8")
    with redis.Redis.from_url(server.url) as admin:
        admin.flushall()
    return server


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many adds in one process take longer than a fifth of a second on a busy machine."""
    monkeypatch.setattr("tambomq.chasqui.producer.producer.COUNT_VALID_MS", 5000)


_FILL = "for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'd', 'x') end"


async def one(queue: Queue) -> list[Job]:
    return [await queue.add("n", 0)]


async def refuses(queue: Queue) -> bool:
    try:
        await queue.add("n", 1)
    except QueueFull:
        return True
    return False


def port(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.usefixtures("patient")
async def test_an_add_that_arrives_late_at_a_full_queue_drops_nothing(
    redis8: Server, keys: Keys
) -> None:
    db = redis.Redis.from_url(redis8.url)
    go, held = asyncio.Event(), list[bytes]()

    async def hold(data: bytes) -> None:
        if UNCHECKED_ADD in data:
            held.append(data)
            await go.wait()

    async with (
        stalling(port(redis8), hold) as url,
        Queue(keys.queue, redis_url=url, max_stream_len=CAP) as late,
        Queue(keys.queue, redis_url=redis8.url, max_stream_len=CAP) as other,
    ):
        first = await late.add("first", 0)
        adds = [asyncio.create_task(late.add("late", place)) for place in range(400)]
        await eventually_async(lambda: held)
        db.eval(_FILL, 1, keys.stream, CAP - 1)
        with pytest.raises(QueueFull):
            await other.add("refused", 1)
        go.set()
        jobs = await asyncio.gather(*adds)
        assert db.xlen(keys.stream) == CAP + 400
        rest: Any = db.xrevrange(keys.stream, count=400)
        assert len(rest) == len({job.id for job in jobs}) == 400
        assert first.id.encode() in db.xrange(keys.stream, count=1)[0][1][b"d"]  # type: ignore[index]
        await eventually_async(lambda: refuses(late), within_s=30)
        assert not db.exists(keys.events), "nothing was trimmed"
    db.close()


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.usefixtures("patient")
async def test_fifty_producers_on_stalling_lines_lose_no_job(redis8: Server, keys: Keys) -> None:
    drawn, held = random.Random(14), list[float]()
    run, accepted, refused = set[str](), set[str](), list[Exception]()
    time = asyncio.get_running_loop().time
    ends = time() + 10

    async def hold(data: bytes) -> None:
        if UNCHECKED_ADD in data:
            held.append(drawn.uniform(0, 10))
            await asyncio.sleep(held[-1])

    async def handler(job: Job) -> None:
        run.add(job.id)
        await asyncio.sleep(0.05)

    async def produce(queue: Queue, jobs: int) -> None:
        adds = [queue.add_bulk([{"name": "n", "data": 0}] * jobs) for _ in range(jobs // 10)]
        made = await asyncio.gather(*map(one, [queue] * 20), *adds, return_exceptions=True)
        refused.extend(each for each in made if isinstance(each, Exception))
        accepted.update(job.id for each in made if isinstance(each, list) for job in each)

    async def keep_on(url: str, jobs: int) -> None:
        async with Queue(keys.queue, redis_url=url, max_stream_len=MIN_FREE + 5000) as queue:
            accepted.add((await queue.add("n", 0)).id)
            if jobs > 1:
                await eventually_async(lambda: len(held) >= 25, within_s=20)
            while time() < ends or (not refused and time() < ends + 30):
                await produce(queue, jobs)
                await asyncio.sleep(0.05)

    worker = Worker(keys.queue, handler, redis_url=redis8.url, concurrency=1)
    async with stalling(port(redis8), hold) as url, working(worker):
        await asyncio.gather(keep_on(redis8.url, 250), *(keep_on(url, 1) for _ in range(50)))
    with redis.Redis.from_url(redis8.url) as db:
        waiting = ids(db, keys)
        events: Any = db.xrange(keys.events)
        assert b"trimmed" not in {fields[b"e"] for _, fields in events}
    assert {type(each) for each in refused} == {QueueFull}
    assert len(waiting) == len(set(waiting))
    assert run | set(waiting) == accepted, "no job that was accepted has vanished"
