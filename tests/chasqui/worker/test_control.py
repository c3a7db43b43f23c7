"""What a worker shows and obeys from outside: observer, proof of consumption, pause, stop."""

from __future__ import annotations

import logging
import threading

import pytest
import redis

from tambomq.chasqui import CancelJob, Job, Queue, RetryIn, UnrecoverableError
from tambomq.chasqui.keys import Keys
from tests.chasqui import working
from tests.chasqui.conftest import Work
from tests.chasqui.working import GatedHandler, completed, emitted_events
from tests.runtime.test_observer import Recorder
from tests.servers import eventually_async

server = working.server


async def nothing(_: Job) -> None:
    pass


async def test_each_run_is_reported_with_its_outcome(queue: Queue, work: Work) -> None:
    async def handler(job: Job) -> None:
        if job.attempt == 1 and job.name == "retried":
            raise RetryIn(0, "later")
        if job.name == "dead":
            raise UnrecoverableError("no use")
        if job.name == "cancelled":
            raise CancelJob("not needed")

    names = ["completed", "retried", "dead", "cancelled"]
    recorder = Recorder()
    async with work(handler) as worker:
        worker.observer = recorder
        await queue.add_bulk([{"name": name, "data": None} for name in names])
        await eventually_async(lambda: len(recorder.ended) == 5, within_s=20)
        await eventually_async(lambda: worker.in_flight == 0)
    ended = {(each.name, each.attempt): each for each in recorder.ended}
    assert [ended[name, 1].outcome for name in names] == names
    assert ended["retried", 2].outcome == "completed"
    assert ended["dead", 1].error == "tambomq.errors.UnrecoverableError: no use"
    assert ended["completed", 1].error == ""
    assert all(each.waited_ms >= 0 and each.queue == queue.name for each in recorder.ended)
    assert len(recorder.started) == 5


async def test_retry_in_waits_exactly_so_long_and_counts(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async def handler(_: Job) -> None:
        raise RetryIn(90.5, "the shop is closed")

    await queue.add("n", 1)
    async with work(handler) as worker:
        await eventually_async(lambda: worker.stats.retried == 1)
    (event,) = emitted_events(db, keys, "retry-scheduled")
    assert (event["attempt"], event["backoff_ms"]) == ("2", "90500")
    (failed,) = emitted_events(db, keys, "failed")
    assert failed["reason"] == "the shop is closed"


async def test_a_worker_proves_that_it_consumes_and_can_be_paused(queue: Queue, work: Work) -> None:
    handler = GatedHandler()
    async with work(handler, concurrency=1) as worker:
        await queue.add("n", 1)
        await handler.holds(1)
        assert worker.is_consuming
        assert worker.last_fetch_at is not None
        assert worker.in_flight == 1
        threading.Thread(target=worker.pause_fetching).start()
        await eventually_async(lambda: worker._fetching_paused)
        handler.go.set()
        await completed(worker, 1)
        await queue.add("n", 2)
        assert worker.is_running
        assert worker.is_consuming
        worker.stop()
    assert handler.begun == [1]
    assert not worker.is_consuming
    assert (await queue.get_job_counts()).waiting == 1


async def test_a_log_filter_that_raises_costs_no_runner(queue: Queue, work: Work) -> None:
    class Strange(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    class Raising(logging.Filter):
        def filter(self, _: logging.LogRecord) -> bool:
            raise RuntimeError("a filter of the user")

    async def handler(job: Job) -> None:
        if job.data != "good":
            raise Strange

    log, raising = logging.getLogger("tambomq.chasqui.worker.outcomes"), Raising()
    async with work(handler, concurrency=1) as worker:
        log.addFilter(raising)
        try:
            await queue.add_bulk([{"name": "n", "data": n} for n in range(3)])
            await queue.add("n", "good")
            await completed(worker, 1)
        finally:
            log.removeFilter(raising)


@pytest.mark.parametrize("seconds", [-1, True, "5", float("nan"), 1e9])
def test_retry_in_checks_its_time(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        RetryIn(seconds)


async def test_a_consumer_is_reported_before_it_reads_and_when_it_has_left(
    queue: Queue, work: Work
) -> None:
    reported: list[tuple[str, int, bool]] = []
    handler = GatedHandler()
    async with work(handler, claim_min_idle_ms=7000) as worker:
        worker.on_consumer = lambda lease, reads: reported.append(
            (lease.queue, lease.idle_ms, reads)
        )
        await queue.add("job", None)
        await handler.holds(1)
        assert reported == [(queue.name, 7000, True)]
        handler.go.set()
    assert reported == [(queue.name, 7000, True), (queue.name, 7000, False)]


async def test_a_consumer_that_has_left_jobs_behind_is_not_reported_as_gone(
    queue: Queue, work: Work
) -> None:
    reported: list[bool] = []
    release = threading.Event()

    def handler(_: Job) -> None:
        release.wait()

    async with work(handler, grace_s=0) as worker:
        worker.on_consumer = lambda _, reads: reported.append(reads)
        await queue.add("job", None)
        await eventually_async(lambda: worker.in_flight == 1)
    release.set()
    assert False not in reported
    assert True in reported


async def test_a_consumer_id_of_the_users_own_is_not_reported(queue: Queue, work: Work) -> None:
    reported: list[bool] = []
    async with work(nothing, consumer_id="me") as worker:
        worker.on_consumer = lambda _, reads: reported.append(reads)
        await queue.add("job", None)
        await eventually_async(lambda: worker.stats.completed == 1)
    assert reported == []
