"""Queues and workers on a cluster of three nodes, given the address of only one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis

from tambomq.chasqui import (
    BackoffSpec,
    BlockingQueue,
    Job,
    Queue,
    QueueEvents,
    RepeatPattern,
    UnrecoverableError,
    Worker,
)
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.errors import JobFailed, QueueBusy, QueueFull
from tambomq.ids import letters
from tambomq.store.roundtrip import slot_of
from tests.chasqui.conftest import working
from tests.servers import eventually, eventually_async
from tests.servers.cluster import Cluster

AT_ONCE = BackoffSpec.fixed(1)
# A worker there reads for a second at a time; twenty mean that it does not.
LONG_MS = 200_000


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.nodes[0].url


@pytest.fixture(params=[0, 2], ids=["the first node", "another node"])
def owner(request: pytest.FixtureRequest) -> int:
    """The node that the queue is on."""
    node: int = request.param
    return node


@pytest.fixture
def keys(cluster: Cluster, owner: int) -> Keys:
    return keys_on(cluster, owner)


@pytest.fixture
def db(cluster: Cluster, owner: int) -> Iterator[redis.Redis]:
    """The queue's node as an independent client sees it."""
    with redis.Redis.from_url(cluster.nodes[owner].url) as client:
        yield client


@pytest.fixture
async def queue(url: str, keys: Keys) -> AsyncIterator[Queue]:
    async with Queue(keys.queue, redis_url=url) as opened:
        yield opened


def keys_on(cluster: Cluster, node: int) -> Keys:
    """The keys of a new queue on *node*."""
    while True:
        keys = Keys(f"q-{letters(8)}")
        if cluster.home(slot_of(keys.stream)) == node:
            return keys


class Handler:
    """Returns the job's data, doubled; fails as its name says."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, int]] = []

    async def __call__(self, job: Job) -> Any:
        self.seen.append((job.name, job.data, job.attempt))
        if job.name == "hopeless":
            raise UnrecoverableError("no use")
        if job.name == "fails" or (job.name == "shy" and job.attempt < 3):
            raise ValueError("not yet")
        return job.data * 2


def worker(url: str, keys: Keys, handler: Any, **options: Any) -> Worker:
    given = {"redis_url": url, "store_results": True, "backoff": AT_ONCE, "max_attempts": 3}
    return Worker(keys.queue, handler, **{**given, **options})


async def test_jobs_are_added_and_run(url: str, keys: Keys, queue: Queue) -> None:
    handler = Handler()
    async with working(worker(url, keys, handler)) as running:
        await queue.add("one", 1)
        await queue.add("late", 2, delay_ms=30)
        await queue.add("mine", 3, job_id="x", delay_ms=30)
        await queue.add_bulk([{"name": "many", "data": n} for n in range(1200)])
        await eventually_async(lambda: running.stats.completed == 1203, within_s=20)
    assert sorted(n for name, n, _ in handler.seen if name == "many") == list(range(1200))
    assert {name for name, *_ in handler.seen} == {"one", "late", "mine", "many"}
    counts = await queue.get_job_counts()
    assert (counts.waiting, counts.active, counts.delayed, counts.dead) == (0, 0, 0, 0)


async def test_a_bulk_of_all_kinds_is_added_in_one_call(url: str, keys: Keys, queue: Queue) -> None:
    await queue.add_bulk(
        [
            {"name": "now", "data": 1},
            {"name": "id", "data": 2, "job_id": "a"},
            {"name": "late", "data": 3, "delay_ms": 60_000},
            {"name": "late id", "data": 4, "delay_ms": 60_000, "job_id": "b"},
        ]
    )
    counts = await queue.get_job_counts()
    assert (counts.waiting, counts.delayed) == (2, 2)
    assert await queue.cancel_delayed_bulk(["b", "c"]) == [True, False]


@pytest.mark.parametrize("dedup", ["window", "strict"])
async def test_an_id_counts_once(url: str, keys: Keys, dedup: str) -> None:
    async with Queue(keys.queue, redis_url=url, dedup=dedup) as queue:
        for n in range(3):
            await queue.add("n", n, job_id="x")
        assert (await queue.get_job_counts()).waiting == 1


async def test_a_full_queue_refuses(url: str, keys: Keys) -> None:
    async with Queue(keys.queue, redis_url=url, max_stream_len=2) as queue:
        await queue.add("n", 1)
        await queue.add("n", 2)
        with pytest.raises(QueueFull):
            await queue.add("n", 3)


async def test_a_job_that_fails_runs_again_and_the_dead_are_replayed(
    url: str, keys: Keys, queue: Queue
) -> None:
    handler = Handler()
    async with working(worker(url, keys, handler)) as running:
        await queue.add("shy", 1)
        await queue.add("fails", 2)
        await queue.add("hopeless", 3)
        await eventually_async(lambda: running.stats.buried == 2, within_s=15)
        await eventually_async(lambda: running.stats.completed == 1, within_s=15)
        reasons = {letter.name: letter.reason for letter in await queue.peek_dlq()}
        assert reasons == {"fails": "retries_exhausted", "hopeless": "unrecoverable"}
        assert await queue.replay_dlq(where=lambda letter: letter.name == "hopeless") == 1
        await eventually_async(lambda: running.stats.buried == 3, within_s=15)
    runs = [(name, attempt) for name, _, attempt in handler.seen]
    assert sorted(runs) == [
        *(("fails", 1), ("fails", 2), ("fails", 3)),
        *(("hopeless", 1), ("hopeless", 1), ("shy", 1), ("shy", 2), ("shy", 3)),
    ]


async def test_results_are_kept_and_waited_for(url: str, keys: Keys, queue: Queue) -> None:
    async with working(worker(url, keys, Handler())):
        job = await queue.add("n", 21)
        assert await job.wait_for_result(timeout=60) == 42
        assert await queue.get_job_result_bulk([job.id, "none"]) == [42, None]
        with pytest.raises(JobFailed):
            await (await queue.add("hopeless", 1)).wait_for_result(timeout=60)


async def test_progress_emits_an_event(url: str, keys: Keys, queue: Queue) -> None:
    async def handler(job: Job) -> int:
        await job.update_progress(40)
        return 1

    async with working(worker(url, keys, handler)):
        job = await queue.add("n", 1)
        await job.wait_for_result(timeout=60)
        assert await queue.get_progress(job.id) == 40


async def test_events_are_received(url: str, keys: Keys, queue: Queue) -> None:
    heard: list[str] = []
    async with (
        QueueEvents(keys.queue, redis_url=url) as events,
        working(worker(url, keys, Handler())),
        asyncio.timeout(60),
    ):
        job = await queue.add("n", 1, delay_ms=20)
        async for event in events:
            if event.job_id == job.id:
                heard.append(event.name)
            if event.name == "completed":
                break
    assert heard == ["delayed", "waiting", "active", "completed"]


async def test_repeatable_jobs_fire(url: str, keys: Keys, queue: Queue) -> None:
    async with working(worker(url, keys, Handler())) as running:
        job = await queue.add("tick", 1, repeat=RepeatPattern.every(50))
        await eventually_async(lambda: running.stats.completed >= 3, within_s=15)
        [meta] = await queue.get_repeatable_jobs()
        assert (meta.key, meta.fired >= 3) == (job.id, True)
        assert await queue.remove_repeatable_by_key(job.id)
    assert await queue.get_repeatable_jobs() == []


async def test_a_paused_queue_starts_nothing(
    url: str, keys: Keys, queue: Queue, db: redis.Redis
) -> None:
    await queue.pause()
    handler = Handler()
    async with working(worker(url, keys, handler)) as running:
        await eventually_async(lambda: running._fetcher is not None and running._fetcher._paused)
        await queue.add("n", 1)
        await queue.add("n", 2, delay_ms=20)
        # By then the worker's promoter has gone on, and its handler might have.
        await eventually_async(lambda: db.xlen(keys.stream) == 2)
        assert handler.seen == []
        assert await queue.resume()
        await eventually_async(lambda: running.stats.completed == 2, within_s=15)
    assert not await queue.is_paused()


async def test_a_limiter_lets_all_start_in_the_end(url: str, keys: Keys, queue: Queue) -> None:
    async with working(worker(url, keys, Handler(), limiter=(3, 100))) as running:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(10)])
        await eventually_async(lambda: running.stats.completed == 10, within_s=15)


async def test_a_limiter_that_cannot_be_asked_loses_no_job(
    url: str, keys: Keys, queue: Queue, db: redis.Redis
) -> None:
    db.set(keys.limiter, "not a hash")
    await queue.add("n", 1)
    async with working(worker(url, keys, Handler(), limiter=(3, 100))) as running:
        taken = {"consumers": 1, "pending": 1}
        await eventually_async(lambda: taken.items() <= group(db, keys).items(), within_s=15)
        db.delete(keys.limiter)
        await eventually_async(lambda: running.stats.completed == 1, within_s=15)


def group(db: redis.Redis, keys: Keys) -> dict[str, Any]:
    found: list[dict[str, Any]] = db.xinfo_groups(keys.stream)
    return found[0] if found else {}


async def test_waiting_jobs_are_drained_and_dead_ones_cleaned(
    url: str, keys: Keys, queue: Queue
) -> None:
    async with working(worker(url, keys, Handler())) as running:
        await queue.add("hopeless", 1)
        await eventually_async(lambda: running.stats.buried == 1, within_s=15)
    assert await queue.clean(-1000) == 1
    await queue.add_bulk([{"name": "n", "data": n} for n in range(700)])
    await queue.add("late", 1, delay_ms=60_000)
    assert await queue.drain(delayed=True) == 701
    counts = await queue.get_job_counts()
    assert (counts.waiting, counts.delayed, counts.dead) == (0, 0, 0)


async def test_obliterating_a_queue_keeps_its_neighbour(
    cluster: Cluster, url: str, owner: int, keys: Keys, queue: Queue, db: redis.Redis
) -> None:
    async with Queue(keys_on(cluster, owner).queue, redis_url=url) as neighbour:
        await neighbour.add("n", 1)
        await queue.add("n", 1, delay_ms=60_000, job_id="x")
        await queue.add("n", 1, repeat=RepeatPattern.every(1000))
        await queue.add("n", 1)
        assert await queue.obliterate() >= 7
        assert list(db.scan_iter(keys.pattern)) == []
        assert (await neighbour.get_job_counts()).waiting == 1


async def test_a_queue_with_running_jobs_is_obliterated_only_by_force(
    url: str, keys: Keys, queue: Queue
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def handler(_: Job) -> None:
        begun.set()
        await go.wait()

    async with working(worker(url, keys, handler)):
        await queue.add("n", 1)
        await asyncio.wait_for(begun.wait(), 60)
        with pytest.raises(QueueBusy):
            await queue.obliterate()
        go.set()


async def test_jobs_of_a_dead_worker_are_claimed(
    url: str, keys: Keys, queue: Queue, db: redis.Redis
) -> None:
    await queue.add("n", 1)
    db.xgroup_create(keys.stream, GROUP, "0")
    db.xreadgroup(GROUP, "dead", {keys.stream: ">"})
    async with working(worker(url, keys, Handler(), claim_min_idle_ms=300)) as running:
        await eventually_async(lambda: running.stats.completed == 1, within_s=15)


async def test_a_job_that_runs_for_long_stays_its_worker_s(
    url: str, keys: Keys, queue: Queue
) -> None:
    runs, go = [], asyncio.Event()

    async def handler(job: Job) -> None:
        runs.append(job.id)
        await go.wait()

    many = [worker(url, keys, handler, claim_min_idle_ms=2500) for _ in range(2)]
    async with working(many[0]), working(many[1]):
        await queue.add("n", 1)
        # Time enough for both to search for idle entries several times.
        clock = await queue.add("n", 2, delay_ms=3000)
        await eventually_async(lambda: clock.id in runs, within_s=15)
        assert len(runs) == 2
        go.set()


async def test_a_closed_worker_leaves_nothing_behind(
    url: str, keys: Keys, queue: Queue, db: redis.Redis
) -> None:
    async with working(worker(url, keys, Handler())) as running:
        await queue.add("n", 1)
        await eventually_async(lambda: running.stats.completed == 1, within_s=15)
    assert db.xinfo_consumers(keys.stream, GROUP) == []
    assert not db.exists(keys.promoter_lock, keys.scheduler_lock)
    # No worker is left to claim it.
    await queue.add("n", 2)
    assert (await queue.get_job_counts()).waiting == 1


async def test_a_worker_closes_though_its_read_would_wait_for_long(
    url: str, keys: Keys, db: redis.Redis
) -> None:
    made = worker(url, keys, Handler(), read_block_ms=LONG_MS)
    task = asyncio.create_task(made.run())
    await eventually_async(lambda: len(db.client_list(_type="normal")) > 1)
    await eventually_async(lambda: "xreadgroup" in str(db.client_list()), within_s=10)
    await made.close()
    await asyncio.wait_for(task, LONG_MS / 1000 / 2)


async def test_on_a_cluster_no_connection_is_unblocked(cluster: Cluster, url: str) -> None:
    keys = keys_on(cluster, 1)
    before = [unblocked(cluster, node) for node in range(3)]
    async with (
        Queue(keys.queue, redis_url=url) as queue,
        working(worker(url, keys, Handler())) as running,
    ):
        await queue.add("n", 1)
        await eventually_async(lambda: running.stats.completed == 1, within_s=15)
    assert [unblocked(cluster, node) for node in range(3)] == before


def unblocked(cluster: Cluster, node: int) -> int:
    stats = cluster.ask(node, "INFO", "commandstats")
    return int(stats.get("cmdstat_client|unblock", {"calls": 0})["calls"])


async def test_queues_on_all_nodes_work_side_by_side(cluster: Cluster, url: str) -> None:
    several = [keys_on(cluster, node) for node in (0, 1, 2, 1)]
    handlers = [Handler() for _ in several]
    workers = [worker(url, keys, handler) for keys, handler in zip(several, handlers, strict=True)]
    tasks = [asyncio.create_task(each.run()) for each in workers]
    for keys in several:
        async with Queue(keys.queue, redis_url=url) as queue:
            await queue.add_bulk([{"name": keys.queue, "data": n} for n in range(100)])
            await queue.add(keys.queue, 100, delay_ms=20)
    for each in workers:
        await eventually_async(lambda each=each: each.stats.completed == 101, within_s=20)  # type: ignore[misc]
        await each.close()
    await asyncio.gather(*tasks)
    for keys, handler in zip(several, handlers, strict=True):
        assert {name for name, *_ in handler.seen} == {keys.queue}
        slot = slot_of(keys.stream)
        assert cluster.ask(cluster.home(slot), "CLUSTER", "COUNTKEYSINSLOT", slot) >= 2


def test_the_blocking_queue_works_on_a_cluster(url: str, keys: Keys, db: redis.Redis) -> None:
    with BlockingQueue(keys.queue, redis_url=url) as queue:
        queue.add("n", 1)
        queue.add_bulk([{"name": "n", "data": n} for n in range(300)])
        queue.add("late", 1, delay_ms=60_000, job_id="x")
        queue.add("tick", 1, repeat=RepeatPattern.every(60_000))
        counts = queue.get_job_counts()
        assert (counts.waiting, counts.delayed, counts.repeatable) == (301, 1, 1)
        assert queue.cancel_delayed("x")
        assert queue.drain() == 301
        assert queue.obliterate() >= 3
        eventually(lambda: not list(db.scan_iter(keys.pattern)))
