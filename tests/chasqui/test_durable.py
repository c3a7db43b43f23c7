"""Adds that are done once the disk or a replica has them."""

from __future__ import annotations

import asyncio

import pytest

from tambomq.chasqui import Job, Queue, RepeatPattern
from tambomq.chasqui.keys import Keys
from tambomq.errors import NotDurable
from tests.chasqui.conftest import Connect
from tests.servers import Server

LACKING = {"durable": "replicas:1", "durable_timeout_s": 0.05}


def test_jobs_that_the_disk_has_survive_a_crash(
    private_server: Server, connect_to: Connect
) -> None:
    queue = connect_to(private_server.url, durable="disk")
    queue.add("mail", 1)
    queue.add("mail", 2)
    queue.add("mail", 3, delay_ms=60_000)
    queue.add_bulk([{"name": "mail", "data": n} for n in range(1000)])
    queue.add("mail", 4, repeat=RepeatPattern.every(60_000))
    private_server.kill()
    private_server.restart()
    counts = queue.get_job_counts()
    assert (counts.waiting, counts.delayed, counts.repeatable) == (1002, 1, 1)


def test_the_level_of_a_queue_counts_unless_an_add_says_otherwise(
    private_server: Server, connect_to: Connect
) -> None:
    queue = connect_to(private_server.url, **LACKING)
    with pytest.raises(NotDurable, match="0 of 1 replicas"):
        queue.add("mail", 1)
    queue.add("mail", 2, durable="memory")
    queue.add_unique("mail", 3, job_id="three", durable="disk")
    queue.add_bulk([{"name": "mail", "data": 4}], durable="memory")
    assert queue.get_job_counts().waiting == 4


def test_an_add_that_is_repeated_with_the_id_of_the_unconfirmed_one_is_stored_once(
    private_server: Server, connect_to: Connect
) -> None:
    queue = connect_to(private_server.url, **LACKING)
    for number in range(3):
        with pytest.raises(NotDurable) as failed:
            queue.add("mail", number)
        job = failed.value.result
        assert isinstance(job, Job)
        queue.add("mail", number, job_id=job.id, durable="disk")
    assert queue.get_job_counts().waiting == 3


def test_a_unique_job_that_is_repeated_is_stored_once(
    private_server: Server, connect_to: Connect
) -> None:
    queue = connect_to(private_server.url, dedup="strict", **LACKING)
    with pytest.raises(NotDurable):
        queue.add_unique("mail", 1, job_id="one")
    assert queue.add_unique("mail", 1, job_id="one", durable="disk").added is False
    assert queue.get_job_counts().waiting == 1


def test_an_unconfirmed_batch_has_its_jobs(private_server: Server, connect_to: Connect) -> None:
    queue = connect_to(private_server.url, **LACKING)
    with pytest.raises(NotDurable) as failed:
        queue.add_bulk([{"name": "mail", "data": n} for n in range(600)])
    jobs = failed.value.result
    assert isinstance(jobs, list)
    assert [job.data for job in jobs] == list(range(600))
    assert queue.get_job_counts().waiting == 600


def test_tasks_that_add_at_once_wait_together(private_server: Server, keys: Keys) -> None:
    async def add() -> None:
        async with Queue(keys.queue, redis_url=private_server.url, durable="disk") as queue:
            jobs = await asyncio.gather(*(queue.add("mail", n) for n in range(200)))
            assert len({job.id for job in jobs}) == 200
            assert (await queue.get_job_counts()).waiting == 200

    asyncio.run(add())


def test_a_durable_add_reopens_a_closed_queue(private_server: Server, connect_to: Connect) -> None:
    queue = connect_to(private_server.url)
    queue.close()
    queue.add("mail", 1, durable="disk")
    assert not queue.is_closed
