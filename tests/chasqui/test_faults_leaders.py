"""Leaders that are frozen or killed: another leads in time, and nothing happens twice."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job
from tests.chasqui.faults import KEYS, QUEUE, EventLog, delayed, frozen, waiting
from tests.chasqui.worker_process import worker_process
from tests.servers import Server, eventually

TTL_S = 2
EVERY_MS = 100
HOLDERS = (b"tambo-first", b"tambo-second")


def leaders(db: redis.Redis) -> tuple[object, object]:
    return db.get(KEYS.promoter_lock), db.get(KEYS.scheduler_lock)


def add_work(queue: BlockingQueue, db: redis.Redis, *, for_s: int) -> tuple[list[Job], int]:
    """Add jobs that come due one after the other, and one that recurs; how often that will be."""
    jobs = [
        queue.add("late", n, job_id=f"late-{n}", delay_ms=50 + 20 * n) for n in range(50 * for_s)
    ]
    end_ms = jobs[0].created_at_ms + for_s * 1000
    queue.upsert_repeatable_job(
        "often",
        0,
        repeat={"kind": "every", "interval_ms": EVERY_MS},
        missed_fires={"kind": "fire-all", "max_catchup": 1000},
        job_id="often",
        end_before_ms=end_ms,
    )
    first_ms = int(db.zscore(KEYS.repeat, "often") or 0)
    return jobs, (end_ms - first_ms) // EVERY_MS + 1


def check(db: redis.Redis, jobs: list[Job], times: int) -> None:
    """Check that each job was promoted once, and each fire added one job."""
    eventually(lambda: not delayed(db) and not db.zcard(KEYS.repeat), within_s=20)
    entries = waiting(db)
    assert set(entries.values()) == {1}
    assert {job.id for job in jobs} <= entries.keys()
    assert len(entries) - len(jobs) == times
    assert EventLog(db).of("waiting") == entries


@pytest.mark.slow
def test_a_frozen_leader_is_replaced_in_time_and_does_nothing_when_it_wakes(
    each_server: Server,
) -> None:
    url = each_server.url
    with (
        redis.Redis.from_url(url) as db,
        BlockingQueue(QUEUE, redis_url=url) as queue,
        ExitStack() as stack,
    ):
        first = stack.enter_context(worker_process(url, "first", ttl_s=TTL_S))
        eventually(lambda: leaders(db) == (HOLDERS[0], HOLDERS[0]), within_s=20)
        connected = len(db.client_list())
        stack.enter_context(worker_process(url, "second", ttl_s=TTL_S))
        eventually(lambda: len(db.client_list()) > connected, within_s=20)
        jobs, times = add_work(queue, db, for_s=6)
        eventually(lambda: len(waiting(db)) > 20)
        with frozen(first.pid):
            eventually(lambda: leaders(db) == (HOLDERS[1], HOLDERS[1]), within_s=TTL_S + 1)
            so_far = len(waiting(db))
            eventually(lambda: len(waiting(db)) > so_far + 20)
        check(db, jobs, times)
        assert leaders(db) == (HOLDERS[1], HOLDERS[1])


@pytest.mark.slow
def test_a_killed_leader_is_replaced_in_time(server: Server, db: redis.Redis) -> None:
    with BlockingQueue(QUEUE, redis_url=server.url) as queue, ExitStack() as stack:
        first = stack.enter_context(worker_process(server.url, "first", ttl_s=TTL_S))
        eventually(lambda: leaders(db) == (HOLDERS[0], HOLDERS[0]), within_s=20)
        connected = len(db.client_list())
        stack.enter_context(worker_process(server.url, "second", ttl_s=TTL_S))
        eventually(lambda: len(db.client_list()) > connected, within_s=20)
        jobs, times = add_work(queue, db, for_s=3)
        eventually(lambda: len(waiting(db)) > 20)
        first.send_signal(signal.SIGKILL)
        eventually(lambda: leaders(db) == (HOLDERS[1], HOLDERS[1]), within_s=TTL_S + 1)
        check(db, jobs, times)
