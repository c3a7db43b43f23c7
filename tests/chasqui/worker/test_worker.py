"""Jobs are added, handlers run them, and nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Queue, Worker
from tambomq.chasqui.keys import Keys
from tambomq.errors import InvalidFormat, InvalidValue, SettingsError
from tests.chasqui import working
from tests.chasqui.conftest import OpenQueue, Work
from tests.chasqui.working import GatedHandler, buried, completed, entries, pending
from tests.servers import Server, eventually_async

server = working.server


async def nothing(_: Job) -> None:
    pass


async def test_a_handler_gets_the_job_as_it_was_added(queue: Queue, work: Work) -> None:
    got: list[Job] = []
    data = {"to": "ann", "n": [1, 2.5, None, True], "blob": b"\x00\xff"}
    added = await queue.add("mail", data)

    async def handler(job: Job) -> None:
        got.append(job)

    async with work(handler) as worker:
        await completed(worker, 1)
    assert got == [Job(added.id, "mail", data, 0, got[0].created_at_ms)]
    assert got[0].attempt == 1


@pytest.mark.parametrize("data", [None, 0, "", [], {}, b"", "höhe 🎈", -(2**63), 2**64 - 1])
async def test_any_payload_arrives(queue: Queue, work: Work, data: Any) -> None:
    got: list[Any] = []

    async def handler(job: Job) -> None:
        got.append(job.data)

    await queue.add("job", data)
    async with work(handler) as worker:
        await completed(worker, 1)
    assert got == [data]


async def test_each_job_is_run_once_and_nothing_is_left(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    seen: Counter[int] = Counter()

    async def handler(job: Job) -> None:
        seen[job.data] += 1
        await asyncio.sleep(0)

    await queue.add_bulk([{"name": "job", "data": n} for n in range(3000)])
    async with work(handler, concurrency=50) as worker:
        await completed(worker, 3000)
    assert seen == Counter(range(3000))
    assert (db.xlen(keys.stream), pending(db, keys)) == (0, {})
    assert worker.stats.received == 3000
    assert (worker.stats.failed, worker.stats.lost, worker.stats.returned) == (0, 0, 0)


async def test_one_runner_runs_jobs_in_the_order_they_were_added(queue: Queue, work: Work) -> None:
    seen: list[int] = []

    async def handler(job: Job) -> None:
        await asyncio.sleep(0)
        seen.append(job.data)

    await queue.add_bulk([{"name": "job", "data": n} for n in range(300)])
    async with work(handler, concurrency=1) as worker:
        await completed(worker, 300)
    assert seen == list(range(300))


async def test_no_more_jobs_run_at_once_than_the_concurrency(queue: Queue, work: Work) -> None:
    now, max_running = 0, 0

    async def handler(_: Job) -> None:
        nonlocal now, max_running
        now += 1
        max_running = max(max_running, now)
        await asyncio.sleep(0.001)
        now -= 1

    await queue.add_bulk([{"name": "job", "data": None}] * 200)
    async with work(handler, concurrency=7) as worker:
        await completed(worker, 200)
    assert max_running == 7


async def test_a_worker_that_waits_gets_a_job_as_soon_as_it_is_added(
    queue: Queue, work: Work
) -> None:
    async with work(nothing) as worker:
        for count in range(1, 20):
            await queue.add("job", count)
            await completed(worker, count)


async def test_a_worker_runs_jobs_that_were_added_before_any_worker(
    queue: Queue, work: Work
) -> None:
    await queue.add_bulk([{"name": "job", "data": n} for n in range(10)])
    assert not (await queue.get_job_counts()).has_group
    async with work(nothing) as worker:
        await completed(worker, 10)
    assert (await queue.get_job_counts()).has_group


async def test_two_workers_share_the_jobs(queue: Queue, work: Work) -> None:
    first, second = GatedHandler(), GatedHandler()
    await queue.add_bulk([{"name": "job", "data": n} for n in range(8)])
    async with work(first, concurrency=4), work(second, concurrency=4):
        await first.holds(4)
        await second.holds(4)
        first.go.set()
        second.go.set()
    assert sorted(first.ended + second.ended) == list(range(8))


async def test_two_groups_each_get_every_job(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    first, second = GatedHandler(), GatedHandler()
    db.xgroup_create(keys.stream, "audit", "0", mkstream=True)
    await queue.add("job", "both")
    # The first to end a job deletes it, so both must have read it before.
    async with work(first), work(second, group="audit"):
        await first.holds(1)
        await second.holds(1)
        first.go.set()
        second.go.set()
    assert first.ended == second.ended == ["both"]
    assert db.xlen(keys.stream) == 0


async def test_delayed_jobs_run_when_they_are_due(queue: Queue, work: Work) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.name)

    await queue.add("later", None, delay_ms=1000)
    await queue.add("n" * 255, None, delay_ms=100)
    await queue.add("now", None)
    async with work(handler) as worker:
        await completed(worker, 3)
    assert seen == ["now", "n" * 255, "later"]


async def test_a_worker_that_does_not_lead_leaves_delayed_jobs_alone(
    queue: Queue, work: Work
) -> None:
    await queue.add("later", None, delay_ms=1)
    async with work(nothing, delayed_enabled=False, run_scheduler=False) as worker:
        await queue.add("now", None)
        await completed(worker, 1)
        assert (await queue.get_job_counts()).delayed == 1


async def test_unreadable_jobs_block_nothing(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    db.xadd(keys.stream, {"what": "this"})
    db.xadd(keys.stream, {"d": b"\xc1"})
    await queue.add("job", "good")
    async with work(nothing) as worker:
        await completed(worker, 1)
        await buried(worker, 2)
    assert [letter["reason"] for letter in entries(db, keys.dlq)] == ["malformed", "decode_failed"]


async def test_a_payload_that_is_not_messagepack_fails_the_run(
    work: Work, db: redis.Redis, keys: Keys
) -> None:
    envelope = b"\x94\xa1a\xc4\x01\xc1\x01\x00"
    db.xadd(keys.stream, {"d": envelope, "n": "job"})
    async with work(nothing, max_attempts=2, backoff=1) as worker:
        await buried(worker, 1)
    assert worker.stats.retried == 1
    (letter,) = entries(db, keys.dlq)
    assert letter["reason"] == "retries_exhausted"


async def test_the_stats_say_what_was_done(queue: Queue, work: Work) -> None:
    async def handler(job: Job) -> None:
        if job.data == "bad":
            raise ValueError

    await queue.add_bulk([{"name": "job", "data": "good"}] * 3)
    await queue.add("job", "bad", attempts=2, backoff=1)
    async with work(handler) as worker:
        await completed(worker, 3)
        await buried(worker, 1)
    stats = worker.stats
    assert (stats.received, stats.completed, stats.failed) == (5, 3, 2)
    assert (stats.retried, stats.buried, stats.lost, stats.returned) == (1, 1, 0, 0)


async def test_a_worker_says_whether_it_runs(queue: Queue, work: Work, keys: Keys) -> None:
    async with work(nothing) as worker:
        await eventually_async(lambda: worker.is_running)
        assert (worker.name, worker.is_closed) == (keys.queue, False)
    assert (worker.is_running, worker.is_closed) == (False, True)


async def test_the_options_of_the_engine_are_taken(queue: Queue, work: Work) -> None:
    await queue.add("job", None)
    options: dict[str, Any] = {
        "concurrency": 2, "max_attempts": 3, "group": "g", "consumer_id": "c1",
        "read_block_ms": 100, "read_count": 1, "claim_min_idle_ms": 500,
        "max_payload_bytes": 1000, "dlq_max_stream_len": 10, "events_enabled": False,
        "scheduler_tick_ms": 100, "store_results": True, "result_ttl_ms": 1000,
    }  # fmt: skip
    async with work(nothing, **options) as worker:
        await completed(worker, 1)


@pytest.mark.parametrize("read_count", [1, 2, 600])
async def test_a_runner_without_work_gets_the_next_job_however_long_the_others_take(
    queue: Queue, work: Work, read_count: int
) -> None:
    held = GatedHandler()
    await queue.add_bulk([{"name": "job", "data": n} for n in range(7)])
    async with work(held, concurrency=10, read_count=read_count):
        await held.holds(7)
        await queue.add_bulk([{"name": "job", "data": n} for n in range(7, 10)])
        await held.holds(10)
        held.go.set()
    assert sorted(held.ended) == list(range(10))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"concurrency": -1}, InvalidValue),
        ({"max_attempts": -1}, InvalidValue),
        ({"claim_min_idle_ms": 0}, InvalidValue),
        ({"read_block_ms": -1}, InvalidValue),
        ({"store_results": True, "result_ttl_ms": 0}, InvalidValue),
        ({"limiter": (0, 1000)}, InvalidValue),
        ({"limiter": (10, 0)}, InvalidValue),
        ({"backoff": {"kind": "random", "delay_ms": 1}}, InvalidFormat),
        ({"dialect": "klingon"}, InvalidFormat),
        ({"redis_url": "http://x"}, SettingsError),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Worker("q", nothing, **options)


def test_a_handler_that_is_not_callable_is_refused() -> None:
    with pytest.raises(InvalidFormat, match="handler"):
        Worker("q", "not a function")  # type: ignore[arg-type]


async def test_an_unknown_heartbeat_is_refused(server: Server) -> None:
    with pytest.raises(SettingsError, match="heartbeat"):
        await Worker("q", nothing, redis_url=server.url, heartbeat="pigeon").run()


def test_a_worker_runs_without_an_event_loop_of_its_callers(
    server: Server, keys: Keys, db: redis.Redis
) -> None:
    worker = Worker(keys.queue, nothing, redis_url=server.url)

    async def add_and_close() -> None:
        async with Queue(keys.queue, redis_url=server.url) as queue:
            await queue.add("job", None)
        await completed(worker, 1)
        await worker.close()

    helper = threading.Thread(target=lambda: asyncio.run(add_and_close()))
    helper.start()
    asyncio.run(worker.run())
    helper.join()
    assert db.xlen(keys.stream) == 0


async def test_scripts_may_be_flushed_at_any_time(
    queue: Queue, work: Work, db: redis.Redis
) -> None:
    seen: Counter[int] = Counter()

    async def handler(job: Job) -> None:
        seen[job.data] += 1
        if len(seen) % 20 == 0:
            db.script_flush()

    await queue.add_bulk([{"name": "job", "data": n} for n in range(400)])
    async with work(handler, concurrency=5) as worker:
        await completed(worker, 400)
    assert set(seen.values()) == {1}


async def test_queues_do_not_see_each_others_jobs(open_queue: OpenQueue, work: Work) -> None:
    held = GatedHandler()
    held.go.set()
    mine, other = open_queue(), open_queue("another")
    await other.add("job", "theirs")
    await mine.add("job", "ours")
    async with work(held) as worker:
        await completed(worker, 1)
    assert held.ended == ["ours"]
    assert (await other.get_job_counts()).waiting == 1
