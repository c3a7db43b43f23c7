"""Queues and workers on a cluster where the replica of a killed node takes over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from tambomq.chasqui import BlockingQueue, Queue, Worker
from tambomq.chasqui.keys import Keys
from tambomq.ids import letters
from tambomq.store.roundtrip import slot_of
from tests.chasqui.conftest import working
from tests.chasqui.working import GatedHandler
from tests.servers import eventually_async
from tests.servers.cluster import Cluster

pytestmark = pytest.mark.slow

HOME = 1
"""The node that the queues are on."""
PATIENCE_S = 120
WITHIN_S = 30


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(replicated=[HOME]) as formed:
        yield formed


def keys_on(cluster: Cluster) -> Keys:
    while True:
        keys = Keys(f"q-{letters(8)}")
        if cluster.home(slot_of(keys.stream)) == HOME:
            return keys


async def test_a_worker_goes_on_at_the_replica_and_no_job_runs_twice(cluster: Cluster) -> None:
    keys, url = keys_on(cluster), cluster.url(0, 2)
    handler = GatedHandler(quick=1)
    worker = Worker(keys.queue, handler, redis_url=url, concurrency=4)
    async with (
        Queue(keys.queue, redis_url=url, patience_s=PATIENCE_S) as queue,
        working(worker),
    ):
        await queue.add("n", 0)
        await eventually_async(lambda: worker.stats.completed == 1, within_s=WITHIN_S)
        await queue.add_bulk([{"name": "n", "data": n} for n in range(1, 5)])
        await queue.add("n", 5, delay_ms=1000)
        await handler.holds(5)
        cluster.replicate(HOME, keys.stream + "-marker")
        killed = cluster.kill_master(HOME)
        # Four end while no node has their queue.
        handler.go.set()
        for n in range(6, 16):
            await queue.add("n", n)
        await eventually_async(lambda: worker.stats.completed == 16, within_s=WITHIN_S)
        await asyncio.to_thread(cluster.restart, killed)
        await queue.add("n", 16)
        await eventually_async(lambda: worker.stats.completed == 17, within_s=WITHIN_S)
        counts = await queue.get_job_counts()
    assert Counter(handler.begun) == Counter(range(17))
    assert (counts.waiting, counts.active, counts.delayed, counts.dead) == (0, 0, 0, 0)
    assert worker.stats.lost == 0


async def test_a_worker_that_was_given_the_killed_node_first_goes_on(cluster: Cluster) -> None:
    keys, url = keys_on(cluster), cluster.url(HOME, 0)
    handler = GatedHandler(quick=100)
    worker = Worker(keys.queue, handler, redis_url=url)
    with BlockingQueue(keys.queue, redis_url=url, patience_s=PATIENCE_S) as queue:
        async with working(worker):
            queue.add("n", 0)
            await eventually_async(lambda: worker.stats.completed == 1, within_s=WITHIN_S)
            cluster.replicate(HOME, keys.stream + "-marker")
            cluster.kill_master(HOME)
            await asyncio.to_thread(cluster.wait_promoted, HOME)
            queue.add_bulk([{"name": "n", "data": n} for n in range(1, 20)])
            await eventually_async(lambda: worker.stats.completed == 20, within_s=WITHIN_S)
    assert Counter(handler.begun) == Counter(range(20))
