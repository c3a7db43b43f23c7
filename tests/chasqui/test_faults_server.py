"""Servers that lose scripts, freeze, crash or are full: every confirmed job is accounted for."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from tambomq.chasqui import Job, Queue, UnrecoverableError, Worker
from tambomq.chasqui.worker.prefetch import MAX_AHEAD, MAX_UNSETTLED
from tambomq.errors import StoreFull
from tests.chasqui.conftest import working
from tests.chasqui.faults import QUEUE, EventLog, JobLoad, dead, delayed, frozen, waiting
from tests.servers import Server, eventually_async
from tests.servers.kinds import binary, kinds


@pytest.fixture
def own_db(private_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(private_server.url) as client:
        yield client


@pytest.fixture
async def own_queue(private_server: Server) -> AsyncIterator[Queue]:
    async with Queue(QUEUE, redis_url=private_server.url) as queue:
        yield queue


@pytest.fixture(params=kinds("valkey", "redis8"))
def durable(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each kind in turn, which confirms nothing that is not on its disk."""
    with Server(binary(request.param), "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
def durable_db(durable: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(durable.url) as client:
        yield client


# ── a server that forgets ────────────────────────────────────────────────────


async def test_workers_heal_after_a_flush_and_run_what_is_added_then(
    each_server: Server,
) -> None:
    ran: Counter[str] = Counter()

    async def handler(job: Job) -> None:
        ran[job.id] += 1
        await asyncio.sleep(0.05)

    def worker() -> Worker:
        return Worker(QUEUE, handler, redis_url=each_server.url, claim_min_idle_ms=1000)

    queue = Queue(QUEUE, redis_url=each_server.url)
    with redis.Redis.from_url(each_server.url) as db:
        async with queue, working(worker()), working(worker()):
            for turn in range(3):
                await queue.add_bulk([{"name": "before", "data": turn}] * 500)
                goal = ran.total() + 20
                await eventually_async(lambda goal=goal: ran.total() >= goal)  # type: ignore[misc]
                db.flushall()
                after = [await queue.add("after", turn) for _ in range(20)]
                after += [await queue.add("after", turn, delay_ms=50) for _ in range(20)]
                ids = {job.id for job in after}
                await eventually_async(lambda ids=ids: ids <= ran.keys(), within_s=10)  # type: ignore[misc]
                await eventually_async(lambda: not waiting(db))
                assert {ran[id] for id in ids} == {1}


@pytest.mark.slow
async def test_a_server_that_forgets_its_scripts_changes_nothing(
    server: Server, db: redis.Redis
) -> None:
    event_log = EventLog(db)
    async with JobLoad(server.url) as load:
        for _ in range(20):
            await load.reach(25)
            db.script_flush()
        await load.account(db, event_log)


# ── a server that stands still ───────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("for_s", "idle_ms"),
    [
        pytest.param(1, 4000, id="for less than the leases"),
        pytest.param(4, 1000, id="for longer than the leases"),
    ],
)
async def test_jobs_that_run_while_the_server_is_frozen_are_settled_once(
    private_server: Server, own_db: redis.Redis, for_s: float, idle_ms: int
) -> None:
    event_log = EventLog(own_db)
    async with JobLoad(private_server.url, idle_ms=idle_ms) as load:
        await load.reach(200)
        with frozen(private_server.pid):
            await asyncio.sleep(for_s)
        await load.reach(100)
        # A lease that could not be renewed has expired, so another worker may claim the job.
        await load.account(own_db, event_log, runs_exact=for_s * 1000 < idle_ms)


# ── a server that crashes ────────────────────────────────────────────────────


@pytest.mark.slow
async def test_nothing_is_lost_or_doubled_when_the_server_is_killed(
    durable: Server, durable_db: redis.Redis
) -> None:
    event_log = EventLog(durable_db)
    async with JobLoad(durable.url) as load:
        for _ in range(8):
            await load.reach(50)
            await asyncio.to_thread(durable.kill)
            await asyncio.to_thread(durable.restart)
        await load.account(durable_db, event_log)


@pytest.mark.slow
async def test_a_worker_without_a_server_holds_no_more_than_it_had(
    private_server: Server, own_db: redis.Redis, own_queue: Queue
) -> None:
    ran: Counter[str] = Counter()

    async def handler(job: Job) -> str:
        ran[job.id] += 1
        await asyncio.sleep(0.01)
        return "x" * 1000

    worker = Worker(
        QUEUE, handler, redis_url=private_server.url, concurrency=50, store_results=True
    )
    jobs = await own_queue.add_bulk([{"name": "job", "data": "x" * 1000}] * 5000)
    async with working(worker):
        await eventually_async(lambda: len(ran) > 500)
        await asyncio.to_thread(private_server.kill)
        fetcher = worker._fetcher
        assert fetcher is not None
        # By now it has run its prefetched jobs.
        await eventually_async(lambda: not fetcher._pool.running + fetcher._pool.queued)
        held, so_far = len(fetcher._in_flight.entries), ran.total()
        assert held <= 50 + 500
        assert await _grown_bytes(during_s=3) < 200_000
        assert (len(fetcher._in_flight.entries), ran.total()) == (held, so_far)
        await asyncio.to_thread(private_server.restart)
        await eventually_async(lambda: not waiting(own_db), within_s=20)
    assert ran == Counter(dict.fromkeys((job.id for job in jobs), 1))
    assert EventLog(own_db).of("completed") == ran


@pytest.mark.slow
async def test_a_worker_that_may_read_and_not_settle_holds_no_more_than_it_should(
    private_server: Server, own_db: redis.Redis, own_queue: Queue
) -> None:
    ran: Counter[str] = Counter()

    async def handler(job: Job) -> None:
        ran[job.id] += 1
        await asyncio.sleep(0.001)

    own_db.acl_setuser("w", enabled=True, nopass=True, keys=["*"], categories=["+@all"])
    url = private_server.url.replace("//", "//w:any@")
    worker = Worker(QUEUE, handler, redis_url=url, concurrency=50)
    jobs = await own_queue.add_bulk([{"name": "job", "data": 0}] * (2 * MAX_UNSETTLED + 1000))
    async with working(worker):
        await eventually_async(lambda: len(ran) > 500)
        own_db.acl_setuser("w", enabled=True, categories=["-@scripting"])
        fetcher = worker._fetcher
        assert fetcher is not None
        max_in_flight = MAX_UNSETTLED + 50 + MAX_AHEAD
        await eventually_async(lambda: len(fetcher._in_flight.entries) >= MAX_UNSETTLED)
        assert await _grown_bytes(during_s=1) < 200_000
        assert len(fetcher._in_flight.entries) <= max_in_flight
        own_db.acl_setuser("w", enabled=True, categories=["+@scripting"])
        await eventually_async(lambda: not waiting(own_db), within_s=20)
    assert ran == Counter(dict.fromkeys((job.id for job in jobs), 1))


async def _grown_bytes(*, during_s: float) -> int:
    """How much more memory is in use after a while; that nothing happens cannot be awaited."""
    tracemalloc.start()
    try:
        await asyncio.sleep(during_s / 3)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        await asyncio.sleep(during_s * 2 / 3)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


# ── a server that is full ────────────────────────────────────────────────────


async def test_a_full_server_refuses_jobs_and_loses_none(
    durable: Server, durable_db: redis.Redis
) -> None:
    async with Queue(QUEUE, redis_url=durable.url) as queue:
        await queue.add("there", 0, job_id="there")
        await queue.add("there", 0, job_id="later", delay_ms=3_600_000)
        fill(durable_db)
        for refused in (
            queue.add("no", 0),
            queue.add("no", 0, job_id="no"),
            queue.add("no", 0, delay_ms=1000),
            queue.add("no", 0, job_id="no", delay_ms=1000),
            queue.add_bulk([{"name": "no", "data": 0}] * 600),
        ):
            with pytest.raises(StoreFull):
                await refused
        assert (waiting(durable_db), delayed(durable_db)) == (
            Counter(["there"]),
            Counter(["later"]),
        )
        durable_db.config_set("maxmemory", 0)
        # A refused add leaves no marker, so it can be repeated.
        await queue.add("no", 0, job_id="no")
        await queue.add("no", 0, job_id="no later", delay_ms=3_600_000)
    assert waiting(durable_db) == Counter(["there", "no"])
    assert delayed(durable_db) == Counter(["later", "no later"])


async def test_running_jobs_are_settled_while_the_server_is_full(
    durable: Server, durable_db: redis.Redis
) -> None:
    go, ran = asyncio.Event(), Counter[str]()

    async def handler(job: Job) -> str | None:
        ran[job.id] += 1
        await go.wait()
        if job.name == "flaky" and job.attempt == 1:
            raise ValueError("once more")
        if job.name == "doomed":
            raise UnrecoverableError("not ever")
        return "value" if job.name == "result" else None

    db = durable_db
    async with Queue(QUEUE, redis_url=durable.url) as queue:
        for kind in ("plain", "flaky", "doomed", "result"):
            await queue.add(kind, 0, job_id=kind)
        async with working(
            Worker(QUEUE, handler, redis_url=durable.url, backoff=1, store_results=True)
        ):
            await eventually_async(lambda: len(ran) == 4)
            fill(db)
            go.set()
            # Ended jobs free memory, and promoted ones need none.
            await eventually_async(lambda: not waiting(db))
            assert (delayed(db), dead(db)) == (Counter(["flaky"]), Counter(["doomed"]))
            db.config_set("maxmemory", 0)
            await eventually_async(lambda: not delayed(db) and not waiting(db))
        assert await queue.get_job_result("result") == "value"
    assert ran == Counter({"plain": 1, "flaky": 2, "doomed": 1, "result": 1})
    assert dead(db) == Counter(["doomed"])


def fill(db: redis.Redis) -> None:
    """Fill the server's memory."""
    db.config_set("maxmemory-policy", "noeviction")
    db.config_set("maxmemory", 1)
