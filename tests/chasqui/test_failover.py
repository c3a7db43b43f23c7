"""Workers that follow to a server which lacks the last moments of the former primary."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tambomq.chasqui import Job, Queue, Worker
from tambomq.chasqui.keys import GROUP, Keys
from tests.chasqui.conftest import working
from tests.chasqui.working import GatedHandler
from tests.servers import eventually_async
from tests.servers.replaced import ReplacedServer

QUEUE = "mail"
KEYS = Keys(QUEUE)
WITHIN_S = 20


@pytest.fixture
def servers() -> Iterator[ReplacedServer]:
    with ReplacedServer() as servers:
        yield servers


def is_empty(servers: ReplacedServer) -> bool:
    with servers.client(servers.second) as db:
        return bool(db.xlen(KEYS.stream) == 0)


async def test_jobs_that_run_during_a_failover_run_once_though_it_lost_their_delivery(
    servers: ReplacedServer, caplog: pytest.LogCaptureFixture
) -> None:
    handler, url = GatedHandler(quick=1), servers.url
    worker = Worker(QUEUE, handler, redis_url=url, concurrency=4)
    async with Queue(QUEUE, redis_url=url) as queue, working(worker):
        await queue.add("n", 0)
        await eventually_async(lambda: worker.stats.completed == 1, within_s=WITHIN_S)
        await queue.add_bulk([{"name": "n", "data": each} for each in range(1, 5)])
        await handler.holds(5)
        servers.copy()
        with servers.client(servers.second) as db:
            # The replica has the jobs, and lacks the deliveries of all but the first.
            consumers: Any = db.xinfo_consumers(KEYS.stream, GROUP)
            for consumer in consumers:
                db.xgroup_delconsumer(KEYS.stream, GROUP, consumer["name"])
            db.xgroup_setid(KEYS.stream, GROUP, "0-1")
        with caplog.at_level(logging.WARNING):
            servers.replace()
            await eventually_async(lambda: "does not know of" in caplog.text, within_s=WITHIN_S)
        handler.go.set()
        await eventually_async(lambda: worker.stats.completed == 5, within_s=WITHIN_S)
        await eventually_async(lambda: is_empty(servers), within_s=WITHIN_S)
        await queue.add("n", 5)
        await eventually_async(lambda: 5 in handler.ended, within_s=WITHIN_S)
    assert Counter(handler.begun) == Counter(range(6))
    assert worker.stats.lost == 0
    (warning,) = [each for each in caplog.messages if "does not know of" in each]
    assert "does not know of 4 deliveries to this worker" in warning


async def test_no_stored_job_is_skipped_where_the_consumer_group_is_missing(
    servers: ReplacedServer,
) -> None:
    ran = Counter[int]()

    async def handler(job: Job) -> None:
        ran[job.data] += 1

    url = servers.url
    async with Queue(QUEUE, redis_url=url) as queue:
        await queue.add_bulk([{"name": "n", "data": each} for each in range(3)])
        servers.copy()
        worker = Worker(QUEUE, handler, redis_url=url)
        async with working(worker):
            await eventually_async(lambda: len(ran) == 3, within_s=WITHIN_S)
            servers.replace()
            # That they ran is lost, and so is the group. What is stored runs again.
            await eventually_async(lambda: ran.total() == 6, within_s=WITHIN_S)
            await queue.add("n", 3, delay_ms=100)
            await eventually_async(lambda: ran[3] == 1, within_s=WITHIN_S)
            await eventually_async(lambda: is_empty(servers), within_s=WITHIN_S)


async def test_a_job_that_the_failover_lost_is_counted(
    servers: ReplacedServer, caplog: pytest.LogCaptureFixture
) -> None:
    handler, url = GatedHandler(), servers.url
    worker = Worker(QUEUE, handler, redis_url=url)
    async with Queue(QUEUE, redis_url=url) as queue, working(worker):
        await queue.add("n", "lost")
        await handler.holds(1)
        servers.replace()
        await eventually_async(servers.is_left, within_s=WITHIN_S)
        await queue.add("n", "kept")
        handler.go.set()
        await eventually_async(lambda: worker.stats.completed == 1, within_s=WITHIN_S)
        await eventually_async(lambda: worker.stats.lost == 1, within_s=WITHIN_S)
    assert handler.ended == ["lost", "kept"]
    assert "1 jobs of queue 'mail' were claimed by another worker or deleted" in caplog.text
    assert is_empty(servers)
