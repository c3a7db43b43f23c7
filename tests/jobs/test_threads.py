"""Plain functions in threads: abandoned when they take too long, and the worker says so."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from tambomq.errors import HandlersStuck, JobCancelled, JobTimedOut
from tambomq.jobs import Context, Jobs
from tambomq.jobs.threads import JobThreads
from tests.jobs.conftest import Work
from tests.servers import eventually_async


async def test_a_function_that_takes_too_long_is_abandoned_and_its_job_retried(
    jobs: Jobs, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    @jobs.job(timeout_s=0.5)
    def slow(ctx: Context) -> int:
        if ctx.attempt == 1:
            release.wait(60)
        return ctx.attempt

    async with work(jobs, threads=2):
        # More than two if the second run had no core to return in time.
        assert await (await slow.add()).result(timeout_s=60) >= 2
        release.set()
    assert "which Python cannot stop (1 of 2 threads are occupied like this)" in caplog.text


async def test_there_are_as_many_threads_as_the_concurrency_says_at_last(jobs: Jobs) -> None:
    barrier = threading.Barrier(3)

    @jobs.job
    def meet() -> int:
        return barrier.wait(20)

    worker = jobs.worker(concurrency=1)
    worker.concurrency = 3
    running = asyncio.create_task(worker.run())
    added = await jobs.add_many([meet.call() for _ in range(3)])
    assert {await each.result(timeout_s=60) for each in added} == {0, 1, 2}
    await worker.close()
    await running


async def test_a_worker_whose_threads_all_hang_ends_and_says_so(jobs: Jobs) -> None:
    release = threading.Event()

    @jobs.job(timeout_s=0.1)
    def hang() -> None:
        release.wait(60)

    await hang.add()
    try:
        with pytest.raises(HandlersStuck, match="all 1 threads"):
            await jobs.worker(threads=1, grace_s=0).run()
    finally:
        release.set()


async def test_calls_wait_for_a_thread_without_timing_out() -> None:
    threads, release = JobThreads("q", 1), threading.Event()
    first = asyncio.create_task(threads.call("1", lambda: release.wait(60), None))
    second = asyncio.create_task(threads.call("2", lambda: "done", 5.0))
    await asyncio.sleep(0)
    third = asyncio.create_task(threads.call("3", lambda: "done", None))
    third.cancel()
    with suppress(asyncio.CancelledError):
        await third
    release.set()
    assert await first
    assert await second == "done"
    threads.close()


async def test_a_call_that_is_cancelled_as_its_turn_comes_lets_the_next_one_run() -> None:
    class CancellingThreads(JobThreads):
        def _on_ended(self, call: Any) -> None:
            super()._on_ended(call)
            # Its thread is free, and the second call has not noticed yet.
            second.cancel()

    threads, release = CancellingThreads("q", 1), threading.Event()
    first = asyncio.create_task(threads.call("1", lambda: release.wait(60), None))
    second = asyncio.create_task(threads.call("2", lambda: "never", None))
    third = asyncio.create_task(threads.call("3", lambda: "done", None))
    await asyncio.sleep(0)
    release.set()
    assert await first
    async with asyncio.timeout(20):
        assert await third == "done"
    assert second.cancelled()
    threads.close()


@pytest.mark.parametrize(
    "error", [StopIteration("x"), SystemExit(3), KeyError("x"), KeyboardInterrupt()]
)
async def test_whatever_a_function_raises_is_raised_to_its_caller(error: BaseException) -> None:
    threads = JobThreads("q", 1)

    def fail() -> None:
        raise error

    with pytest.raises((RuntimeError, SystemExit, KeyError)):
        await threads.call("1", fail, 60)
    release = threading.Event()
    with pytest.raises(JobTimedOut):
        await threads.call("2", lambda: release.wait(60), 0.01)
    assert threads.abandoned == 1
    release.set()
    assert await threads.call("3", lambda: 3, 60) == 3
    threads.close()


async def test_a_job_whose_function_runs_on_is_not_given_to_another_worker(jobs: Jobs) -> None:
    release, begun, seen = threading.Event(), threading.Event(), []

    @jobs.job
    def slow(ctx: Context) -> None:
        begun.set()
        release.wait(60)
        seen.append(ctx.is_cancelled)

    await slow.add()
    worker = jobs.worker(threads=1, grace_s=0)
    task = asyncio.create_task(worker.run())
    try:
        await asyncio.to_thread(begun.wait, 60)
        await worker.close()
        await task
        assert worker.stats.returned == 0
        assert (await jobs.queue.get_job_counts()).active == 1
    finally:
        release.set()
    await eventually_async(lambda: seen == [True], within_s=20)
    await jobs.close()


async def test_a_function_sees_that_its_job_is_cancelled(jobs: Jobs, work: Work) -> None:
    begun, ended = threading.Event(), threading.Event()

    @jobs.job
    def slow(ctx: Context) -> None:
        begun.set()
        while not ctx.is_cancelled:
            ended.wait(0.005)
        ended.set()

    @jobs.job
    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with work(jobs) as worker:
        for function in (slow, waits):
            begun.clear()
            job = await function.add()
            await asyncio.to_thread(begun.wait, 60)
            assert await job.cancel("no longer needed")
            with pytest.raises(JobCancelled, match="no longer needed"):
                await job.result(timeout_s=60)
        await eventually_async(lambda: worker.stats.cancelled == 2, within_s=20)
        assert await asyncio.to_thread(ended.wait, 60)
    assert worker.stats.retried == 0
