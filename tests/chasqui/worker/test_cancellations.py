"""Jobs that are cancelled while they wait, run, end or fail: each has exactly one outcome."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter, defaultdict
from typing import Any

import pytest
import redis

from tambomq.chasqui import CancelJob, Job, Queue, UnrecoverableError, Worker
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.worker import cancellations
from tambomq.chasqui.worker.control import WorkerControl
from tambomq.errors import JobBusy, WrongType
from tests.chasqui import working
from tests.chasqui.conftest import Connect, OpenQueue, Work
from tests.chasqui.working import GatedHandler, Process, emitted_events, pending
from tests.runtime.test_observer import Recorder
from tests.servers import Server, eventually, eventually_async

server = working.server

HOUR_MS = 3_600_000
ENDS = ("completed", "dlq", "cancelled")


async def cancelled(worker: WorkerControl, count: int = 1) -> None:
    """Return when *worker* has counted *count* cancelled jobs."""
    await eventually_async(lambda: worker.stats.cancelled >= count, within_s=20)


def is_empty(db: redis.Redis, keys: Keys) -> bool:
    return not (db.xlen(keys.stream) or db.zcard(keys.delayed) or db.xlen(keys.dlq))


def test_a_cancellation_key_of_another_type_makes_cancel_job_raise(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    job = queue.add("mail", 1)
    db.xgroup_create(keys.stream, GROUP, "0")
    db.xreadgroup(GROUP, "tambo-1", {keys.stream: ">"})
    db.set(keys.cancels, "not ours")
    for _ in range(2):
        with pytest.raises(WrongType):
            queue.cancel_job(job.id)
    assert db.xlen(keys.stream) == 1
    db.delete(keys.cancels)
    assert queue.cancel_job(job.id)


def test_waiting_and_delayed_jobs_are_removed_with_their_reason(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    queue = connect()
    waiting = queue.add("mail", 1)
    late = queue.add("late", 1, delay_ms=HOUR_MS)
    named = queue.add("late", 1, delay_ms=HOUR_MS, job_id="ü")
    for job in (waiting, late, named):
        assert queue.cancel_job(job.id, "not needed") is True
        assert queue.cancel_job(job.id) is False
    assert is_empty(db, keys)
    events = emitted_events(db, keys, "cancelled")
    assert [event["id"] for event in events] == [waiting.id, late.id, "ü"]
    assert list(events[0]) == ["e", "id", "ts", "n", "reason"]
    assert {event["reason"] for event in events} == {"not needed"}
    # Nobody ran them, so no worker has to be told.
    assert not db.exists(keys.cancels)
    assert queue.add("late", 1, delay_ms=HOUR_MS, job_id="ü").id == "ü"
    assert db.zcard(keys.delayed) == 1


def test_unknown_and_dead_jobs_are_not_cancelled(connect: Connect) -> None:
    assert connect().cancel_job("nobody") is False


async def test_a_running_coroutine_is_cancelled_and_its_job_has_ended(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    handler = GatedHandler()
    async with work(handler, concurrency=2) as worker:
        job = await queue.add("mail", 1)
        await handler.holds(1)
        assert await queue.cancel_job(job.id, "changed my mind") is True
        assert is_empty(db, keys)
        await cancelled(worker)
        assert handler.cancelled == [1]
        assert worker.in_flight == 0
        # Its runner goes on.
        handler.go.set()
        await queue.add_bulk([{"name": "mail", "data": n} for n in range(5)])
        await eventually_async(lambda: worker.stats.completed == 5)
    assert worker.stats.lost == worker.stats.failed == worker.stats.returned == 0
    assert emitted_events(db, keys, *ENDS, "failed")[0]["e"] == "cancelled"
    assert int(str(db.ttl(keys.cancels))) > 0


async def test_a_handler_that_catches_its_cancellation_changes_nothing(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    begun = asyncio.Event()

    async def stubborn(job: Job) -> str:
        if job.data == "next":
            return "done"
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert job.is_cancelled
        return "done all the same"

    async with work(stubborn, concurrency=1, store_results=True) as worker:
        job = await queue.add("mail", 1)
        await begun.wait()
        assert await queue.cancel_job(job.id)
        await cancelled(worker)
        following = await queue.add("mail", "next")
        assert await following.wait_for_result(timeout=60) == "done"
    assert await queue.get_job_result(job.id) is None
    assert [event["id"] for event in emitted_events(db, keys, *ENDS)] == [job.id, following.id]
    assert worker.stats.lost == 0


async def test_a_plain_function_looks_whether_it_is_cancelled(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    begun = threading.Event()

    def handler(job: Job) -> None:
        begun.set()
        eventually(lambda: job.is_cancelled, within_s=20)
        raise ValueError("whatever it does now")

    async with work(handler, concurrency=1) as worker:
        job = await queue.add("mail", 1)
        await eventually_async(begun.is_set)
        assert await queue.cancel_job(job.id)
        await cancelled(worker)
    assert [event["e"] for event in emitted_events(db, keys, *ENDS, "failed")] == ["cancelled"]
    assert is_empty(db, keys)


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_handler_cancels_its_own_job(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, is_plain: bool
) -> None:
    def plain(_: Job) -> None:
        raise CancelJob("nothing to do")

    async def coroutine(job: Job) -> None:
        plain(job)

    job = await queue.add("mail", 1)
    async with work(plain if is_plain else coroutine) as worker:
        await cancelled(worker)
    assert worker.stats.failed == 0
    (event,) = emitted_events(db, keys, *ENDS, "failed", "retry-scheduled")
    assert (event["e"], event["id"], event["reason"]) == ("cancelled", job.id, "nothing to do")
    assert is_empty(db, keys)


async def test_a_job_that_was_read_ahead_is_cancelled_before_it_starts(
    queue: Queue, work: Work, keys: Keys, db: redis.Redis
) -> None:
    handler = GatedHandler(quick=200)
    async with work(handler, concurrency=1) as worker:
        # Quick jobs make the worker read ahead of the slow one.
        await queue.add_bulk([{"name": "n", "data": n} for n in range(200)])
        jobs = await queue.add_bulk([{"name": "n", "data": 1000 + n} for n in range(20)])
        await handler.holds(201)
        for job in jobs[1:]:
            assert await queue.cancel_job(job.id)
        handler.go.set()
        await eventually_async(lambda: worker.in_flight == 0 and not db.xlen(keys.stream))
    assert 1000 in handler.ended
    completed = {event["id"] for event in emitted_events(db, keys, "completed")}
    assert completed.isdisjoint({job.id for job in jobs[1:]})
    assert worker.stats.completed == 201


async def test_a_cancelled_job_of_a_killed_worker_never_runs_again(
    queue: Queue, work: Work, server: Server, db: redis.Redis, keys: Keys
) -> None:
    job = await queue.add("mail", 1)
    with Process(server.url, keys.queue, claim_min_idle_ms=300) as process:
        await eventually_async(lambda: db.llen("begun") == 1, within_s=20)
        process.kill()
    assert await queue.cancel_job(job.id)
    other = GatedHandler(quick=9)
    async with work(other, claim_min_idle_ms=300) as worker:
        await queue.add("mail", "next")
        await eventually_async(lambda: worker.stats.completed == 1)
    assert other.begun == ["next"]
    assert pending(db, keys) == {}


async def test_a_job_that_an_engine_or_a_spark_query_runs_cannot_be_cancelled(
    queue: Queue, db: redis.Redis, keys: Keys
) -> None:
    job = await queue.add("mail", 1)
    db.xgroup_create(keys.stream, GROUP, "0")
    for consumer in ("an-engine", "spark-lease"):
        db.xgroup_delconsumer(keys.stream, GROUP, consumer)
        db.xgroup_setid(keys.stream, GROUP, "0")
        db.xreadgroup(GROUP, consumer, {keys.stream: ">"})
        with pytest.raises(JobBusy):
            await queue.cancel_job(job.id)
        assert [owner for owner, _ in pending(db, keys).values()] == [consumer]
    assert emitted_events(db, keys, "cancelled") == []


async def test_a_job_cancelled_while_its_worker_drains_stops_too(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    handler = GatedHandler()
    async with work(handler) as worker:
        job = await queue.add("mail", 1)
        await handler.holds(1)
        worker.stop()
        assert await queue.cancel_job(job.id)
        await cancelled(worker)
    assert handler.cancelled == [1]
    assert worker.stats.returned == 0


async def test_a_worker_is_notified_and_does_not_wait_for_its_next_look(
    queue: Queue, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellations, "POLL_EVERY_S", 3600)
    handler = GatedHandler()
    async with work(handler) as worker:
        for number in (1, 2):
            job = await queue.add("mail", number)
            await handler.holds(number)
            assert await queue.cancel_job(job.id)
            await cancelled(worker, number)


async def test_a_worker_that_was_cut_off_is_notified_again(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellations, "POLL_EVERY_S", 3600)
    cut: Any = db

    def is_subscribed() -> bool:
        return [count for _, count in cut.pubsub_numsub(keys.cancels)] == [1]

    handler = GatedHandler()
    async with work(handler) as worker:
        job = await queue.add("mail", 1)
        await handler.holds(1)
        await eventually_async(is_subscribed)
        cut.client_kill_filter(_type="pubsub")
        # Maybe before it has subscribed again: then it finds the entry when it has.
        assert await queue.cancel_job(job.id)
        await cancelled(worker)


async def test_a_worker_that_may_not_subscribe_looks_by_itself(
    open_queue: OpenQueue, work: Work, db: redis.Redis, keys: Keys, server: Server
) -> None:
    db.acl_setuser(
        *("mute", True), nopass=True, keys=["*"], commands=["+@all"], reset_channels=True
    )
    try:
        url = server.url.replace("redis://", "redis://mute:any@")
        handler = GatedHandler()
        queue = open_queue(redis_url=url)
        async with work(handler, redis_url=url) as worker:
            job = await queue.add("mail", 1)
            await handler.holds(1)
            assert await queue.cancel_job(job.id)
            await cancelled(worker)
    finally:
        db.acl_deluser("mute")


@pytest.mark.parametrize("end", ["returns", "stores", "raises", "dies"])
async def test_an_observer_hears_what_redis_has_decided(
    queue: Queue, connect: Connect, work: Work, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    blocking, recorder = connect(), Recorder()

    async def handler(job: Job) -> int | None:
        # The worker cannot hear of it before the handler has ended: this blocks its loop.
        assert blocking.cancel_job(job.id, "too late")
        if end == "raises":
            raise ValueError("again")
        if end == "dies":
            raise UnrecoverableError("no use")
        return 1 if end == "stores" else None

    async with work(handler, store_results=True) as worker:
        worker.observer = recorder
        await queue.add("mail", 1)
        await cancelled(worker)
        await eventually_async(lambda: worker.in_flight == 0)
    (record,) = recorder.ended
    assert (record.outcome, record.error) == ("cancelled", "CancelJob: too late")
    assert (worker.stats.lost, worker.stats.completed, worker.stats.buried) == (0, 0, 0)
    assert "moved to the dead-letter queue" not in caplog.text


async def race(queue: Queue, worker: Worker, jobs: list[Job], draw: random.Random) -> set[str]:
    """Cancel *jobs* at random moments of their lives; return those that were."""
    taken: set[str] = set()

    async def cancel(job: Job) -> None:
        for _ in range(draw.randrange(30)):
            await asyncio.sleep(0)
        if await queue.cancel_job(job.id):
            taken.add(job.id)

    await asyncio.gather(*(cancel(job) for job in jobs))
    return taken


def drawn(draw: random.Random) -> dict[str, Any]:
    """Return a job that takes some turns of the loop, fails so often, and returns something."""
    data = {
        "turns": draw.randrange(20),
        "fails": draw.randrange(3),
        "result": draw.choice([None, 1]),
    }
    return {"name": "n", "data": data, "attempts": 2}


@pytest.mark.parametrize("seed", range(3))
async def test_each_job_has_one_end_however_cancellation_races_it(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, seed: int
) -> None:
    draw = random.Random(seed)
    ended = Counter[str]()

    async def handler(job: Job) -> Any:
        for _ in range(job.data["turns"]):
            await asyncio.sleep(0)
        ended[job.id] += 1
        if job.data["fails"] > job.attempts_made:
            raise ValueError("again")
        return job.data["result"]

    options: dict[str, Any] = {"concurrency": 5, "store_results": True, "backoff": 0}
    recorder = Recorder()
    async with work(handler, **options) as one, work(handler, **options) as two:
        one.observer = two.observer = recorder
        jobs = await queue.add_bulk([drawn(draw) for _ in range(60)])
        taken = await race(queue, one, jobs, draw)
        settled = lambda: not (db.xlen(keys.stream) or db.zcard(keys.delayed))  # noqa: E731
        await eventually_async(settled, within_s=30)
    ends = Counter((event["id"], event["e"]) for event in emitted_events(db, keys, *ENDS))
    assert Counter(id for id, _ in ends) == Counter(job.id for job in jobs)
    assert set(ends.values()) == {1}
    assert {id for id, end in ends if end == "cancelled"} == taken
    for id in taken:
        assert await queue.get_job_result(id) is None
    assert one.stats.lost == two.stats.lost == 0
    assert_observed(recorder, taken, one.stats.completed + two.stats.completed)


def assert_observed(recorder: Recorder, taken: set[str], completed: int) -> None:
    """Check that what was observed agrees with what Redis has decided."""
    assert len(recorder.ended) == len(recorder.started)
    by_outcome: dict[str, list[str]] = defaultdict(list)
    for each in recorder.ended:
        by_outcome[each.outcome].append(each.id)
    assert len(by_outcome["completed"]) == completed
    assert set(by_outcome["cancelled"]) <= taken
    assert taken.isdisjoint(by_outcome["completed"])
