"""Connections that break after the server has run a command and before it has replied."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import redis

from tambomq.chasqui import Job, Queue, UnrecoverableError, Worker
from tests.chasqui.conftest import working
from tests.chasqui.faults import (
    GROUP,
    KEYS,
    QUEUE,
    BadLine,
    EventLog,
    JobLoad,
    cut_all,
    dead,
    delayed,
    waiting,
)
from tests.servers import Server, eventually_async
from tests.servers.kinds import kinds
from tests.store.proxy import Proxy

HOUR_MS = 3_600_000


@pytest.fixture(params=kinds("valkey", "redis8"))
def either_server(request: pytest.FixtureRequest, running: Callable[[str], Server]) -> Server:
    """An empty server without optional features, and one with all."""
    server = running(request.param)
    with redis.Redis.from_url(server.url) as admin:
        admin.flushall()
    return server


@pytest.fixture
def line(either_server: Server) -> Iterator[BadLine]:
    """A line to the server that loses one reply in fifty."""
    with BadLine(either_server.port) as line:
        yield line


@pytest.fixture
def either_db(either_server: Server) -> Iterator[redis.Redis]:
    """The server as an independent client sees it, on a good line."""
    with redis.Redis.from_url(either_server.url) as client:
        yield client


def once(jobs: list[Job]) -> Counter[str]:
    """The ids of *jobs*, each as often as it may be anywhere."""
    return Counter({job.id for job in jobs})


# ── the server hangs up on everybody ─────────────────────────────────────────


@pytest.mark.slow
async def test_nothing_is_lost_or_doubled_while_every_connection_is_cut_each_second(
    either_server: Server, either_db: redis.Redis
) -> None:
    event_log = EventLog(either_db)
    async with JobLoad(either_server.url) as load:
        for _ in range(4):
            await load.reach(100, after_s=1)
            cut_all(either_db)
        await load.account(either_db, event_log)


async def test_a_worker_that_was_cut_off_while_it_did_not_read_still_ends_at_once(
    server: Server, db: redis.Redis
) -> None:
    go, event_log = asyncio.Event(), EventLog(db)

    async def handler(_: Job) -> None:
        await go.wait()

    async with Queue(QUEUE, redis_url=server.url) as queue:
        worker = Worker(QUEUE, handler, redis_url=server.url, concurrency=1, read_block_ms=20_000)
        async with working(worker):
            await queue.add("job", 0, job_id="one")
            await eventually_async(lambda: event_log.of("active"))
            cut_all(db)
            go.set()
            await eventually_async(lambda: event_log.of("drained"))
            # It waits for jobs now, on another connection than before.
            await eventually_async(lambda: db.info("clients")["blocked_clients"])
            await worker.close()
            await eventually_async(lambda: not worker.is_running)


async def test_nothing_is_lost_or_doubled_while_every_connection_is_cut_all_the_time(
    server: Server, db: redis.Redis
) -> None:
    event_log = EventLog(db)
    async with JobLoad(server.url) as load:
        for _ in range(25):
            await load.reach(10)
            cut_all(db)
        await load.account(db, event_log)


# ── replies are lost ─────────────────────────────────────────────────────────


async def test_jobs_added_over_a_failing_connection_are_stored_once(
    line: BadLine, either_db: redis.Redis
) -> None:
    jobs: list[Job] = []
    async with Queue(QUEUE, redis_url=line.url) as queue:
        for n in range(200):
            jobs.append(await queue.add("mine", n, job_id=f"mine-{n}"))
            jobs.append(await queue.add("any", n))
            many: list[dict[str, Any]] = [{"name": "any", "data": n} for _ in range(5)]
            many += [{"name": "mine", "data": n, "job_id": f"bulk-{n}-{m}"} for m in range(3)]
            jobs += await queue.add_bulk(many)
        # Many at once share a connection, and all of them lose their replies with it.
        for n in range(20):
            jobs += await asyncio.gather(*(queue.add("any", n) for _ in range(50)))
    assert line.lost > 5
    assert waiting(either_db) == once(jobs)


async def test_a_strict_queue_adds_an_id_once_on_a_bad_line(
    line: BadLine, either_db: redis.Redis
) -> None:
    async with (
        Queue(QUEUE, redis_url=line.url, dedup="strict") as queue,
        Queue(QUEUE, redis_url=line.url, dedup="strict") as other,
    ):
        jobs = [
            await each.add("mine", n, job_id=str(n)) for n in range(300) for each in (queue, other)
        ]
    assert line.lost > 5
    assert waiting(either_db) == once(jobs)


@pytest.mark.parametrize("how", ["in bulk", "one by one"])
@pytest.mark.parametrize("keyed", [True, False], ids=["with ids", "without"])
async def test_a_thousand_jobs_of_which_no_reply_came_are_there_once(
    either_server: Server, either_db: redis.Redis, how: str, keyed: bool
) -> None:
    many: list[dict[str, Any]] = [
        {"name": "job", "data": n, "job_id": f"mine-{n}" if keyed else None} for n in range(1000)
    ]
    with Proxy(either_server.port) as proxy:
        async with Queue(QUEUE, redis_url=proxy.url) as queue:
            # By these the server learns the scripts.
            jobs = await queue.add_bulk([{"name": "job", "data": 0, "job_id": "first"}])
            jobs += await queue.add_bulk([{"name": "job", "data": 0}])
            jobs += [await queue.add("job", 0), await queue.add("job", 0, job_id="fourth")]
            proxy.silent = True
            if how == "in bulk":
                adding: asyncio.Future[Any] = asyncio.ensure_future(queue.add_bulk(many))
            else:
                adding = asyncio.gather(*(queue.add(**job) for job in many))
            await eventually_async(lambda: either_db.xlen(KEYS.stream) == 1004)
            proxy.silent = False
            proxy.hang_up()
            jobs += await adding
    assert waiting(either_db) == once(jobs)


async def test_a_delayed_job_is_stored_once_or_cancelled_on_a_bad_connection(
    line: BadLine, either_db: redis.Redis
) -> None:
    kept: list[Job] = []
    async with Queue(QUEUE, redis_url=line.url) as queue:
        for n in range(200):
            kept.append(await queue.add("mine", n, job_id=f"kept-{n}", delay_ms=HOUR_MS))
            kept.append(await queue.add("any", n, delay_ms=HOUR_MS))
            await queue.add("mine", n, job_id=f"gone-{n}", delay_ms=HOUR_MS)
            # Its answer may be that of a repetition, which finds nothing any more.
            await queue.cancel_delayed(f"gone-{n}")
    assert line.lost > 5
    assert delayed(either_db) == once(kept)
    assert not either_db.exists(KEYS.marker("gone-7"), KEYS.index("gone-7"))


async def test_a_delayed_add_that_is_repeated_when_the_job_is_due_adds_it_once(
    server: Server, db: redis.Redis
) -> None:
    with Proxy(server.port) as proxy:
        async with Queue(QUEUE, redis_url=proxy.url) as queue:
            # By this the server learns the script.
            await queue.add("any", 0, job_id="later", delay_ms=HOUR_MS)
            proxy.silent = True
            adding = asyncio.create_task(queue.add("any", 0, delay_ms=200))
            await eventually_async(lambda: len(delayed(db)) == 2)
            async with Worker(QUEUE, _nothing, redis_url=server.url) as worker:
                running = asyncio.create_task(worker.run())
                await eventually_async(lambda: worker.stats.completed == 1)
                proxy.silent = False
                proxy.hang_up()
                job = await adding
                await eventually_async(lambda: len(delayed(db)) == 1 and not waiting(db))
            await running
    assert EventLog(db).of("completed") == Counter([job.id])


async def _nothing(_: Job) -> None:
    pass


# ── replies to workers are lost ──────────────────────────────────────────────


async def test_jobs_are_run_and_settled_once_on_a_bad_line(
    line: BadLine, either_server: Server, either_db: redis.Redis
) -> None:
    ran: Counter[tuple[str, int]] = Counter()

    async def handler(job: Job) -> str | None:
        ran[job.id, job.attempt] += 1
        await asyncio.sleep(0.001)
        if job.name == "flaky" and job.attempt < 3:
            raise ValueError("once more")
        if job.name == "doomed":
            raise UnrecoverableError("not ever")
        return job.id if job.name == "result" else None

    def worker() -> Worker:
        return Worker(
            QUEUE,
            handler,
            redis_url=line.url,
            concurrency=4,
            claim_min_idle_ms=3000,
            backoff=10,
            store_results=True,
        )

    names = ("plain", "flaky", "doomed", "result") * 150
    async with Queue(QUEUE, redis_url=either_server.url) as queue:
        jobs = await queue.add_bulk([{"name": name, "data": 0} for name in names])
        async with working(worker()), working(worker()):
            await eventually_async(lambda: not waiting(either_db), within_s=25)
            await eventually_async(lambda: not delayed(either_db) and not waiting(either_db))
        kept = await queue.get_job_result_bulk([job.id for job in jobs])
    # How many replies there are depends on how much is settled at once.
    assert line.lost > 2
    doomed = once([job for job in jobs if job.name == "doomed"])
    assert dead(either_db) == doomed
    assert EventLog(either_db).of("completed") == once(jobs) - doomed
    assert kept == [job.id if job.name == "result" else None for job in jobs]
    runs = {"plain": 1, "flaky": 3, "doomed": 1, "result": 1}
    assert ran == Counter((job.id, run) for job in jobs for run in range(1, runs[job.name] + 1))


async def test_a_worker_recovers_entries_of_lost_read_replies(
    either_server: Server, either_db: redis.Redis
) -> None:
    ran: Counter[str] = Counter()
    queue = Queue(QUEUE, redis_url=either_server.url)
    with BadLine(either_server.port, one_in=1_000_000) as line:
        # The reply to the read is lost, and then that of the recovery.
        line.lose = [b"needle", b"needle"]
        async with queue, working(_counting(ran, line)):
            await queue.add("job", 0, job_id="needle")
            await eventually_async(lambda: ran["needle"] and not waiting(either_db))
    assert line.lost == 2
    assert ran == Counter(["needle"])


async def test_a_worker_recovers_entries_of_a_lost_claim_reply(
    either_server: Server, either_db: redis.Redis
) -> None:
    ran: Counter[str] = Counter()
    queue = Queue(QUEUE, redis_url=either_server.url)
    with BadLine(either_server.port, one_in=1_000_000) as line:
        line.lose = [b"needle"]
        async with queue:
            await queue.add("job", 0, job_id="needle")
            either_db.xgroup_create(KEYS.stream, GROUP, "0")
            ((_, ((entry, _),)),) = cast(
                "list[Any]", either_db.xreadgroup(GROUP, "dead", {KEYS.stream: ">"})
            )
            either_db.xclaim(KEYS.stream, GROUP, "dead", 0, [entry], idle=60_000)
            async with working(_counting(ran, line)):
                await eventually_async(lambda: ran["needle"] and not waiting(either_db), within_s=9)
    assert line.lost == 1
    assert ran == Counter(["needle"])


def _counting(ran: Counter[str], line: Proxy) -> Worker:
    async def handler(job: Job) -> None:
        ran[job.id] += 1

    return Worker(QUEUE, handler, redis_url=line.url)


async def test_dead_letters_are_replayed_once_on_a_bad_line(
    line: BadLine, either_server: Server, either_db: redis.Redis
) -> None:
    async def handler(_: Job) -> None:
        raise UnrecoverableError("not ever")

    async with Queue(QUEUE, redis_url=either_server.url) as queue:
        jobs = await queue.add_bulk([{"name": "doomed", "data": 0}] * 300)
        async with working(Worker(QUEUE, handler, redis_url=either_server.url)):
            await eventually_async(lambda: either_db.xlen(KEYS.dlq) == 300)
    async with Queue(QUEUE, redis_url=line.url) as queue:
        while await queue.peek_dlq(1):
            await queue.replay_dlq(1)
    assert line.lost > 5
    assert waiting(either_db) == once(jobs)
    assert not dead(either_db)


async def test_jobs_are_promoted_and_fired_once_on_a_bad_line(
    line: BadLine, either_server: Server, either_db: redis.Redis
) -> None:
    ran: Counter[str] = Counter()
    async with Queue(QUEUE, redis_url=either_server.url) as queue:
        later = [
            await queue.add("late", n, job_id=f"late-{n}", delay_ms=10 * n) for n in range(150)
        ]
        end_ms = later[0].created_at_ms + 2500
        await queue.upsert_repeatable_job(
            "often",
            0,
            repeat={"kind": "every", "interval_ms": 20},
            missed_fires={"kind": "fire-all", "max_catchup": 1000},
            job_id="often",
            end_before_ms=end_ms,
        )
        first_ms = int(either_db.zscore(KEYS.repeat, "often") or 0)
        async with working(_counting(ran, line)):
            await eventually_async(lambda: not either_db.zcard(KEYS.repeat), within_s=15)
            await eventually_async(lambda: not delayed(either_db) and not waiting(either_db))
    assert line.lost > 0
    assert once(later) <= ran
    assert set(ran.values()) == {1}
    assert len(ran) - len(later) == (end_ms - first_ms) // 20 + 1


def test_the_bad_line_loses_replies_and_not_requests(server: Server, db: redis.Redis) -> None:
    with BadLine(server.port, one_in=1) as line:
        for count in (1, 2):
            with socket.create_connection(("127.0.0.1", line.port)) as client:
                client.sendall(b"INCR n\r\n")
                assert client.recv(1) == b""
            assert db.get("n") == str(count).encode()
