"""Clients of a `Jobs`: one for each process and each event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from inspect import signature

import pytest

from tambomq.chasqui import Queue, Worker
from tambomq.jobs import Jobs
from tambomq.jobs.connections import SHARED
from tambomq.testing import assert_enqueued
from tests.jobs.conftest import Work
from tests.servers import Server, binaries

SECRET = "s3cret"


async def test_workers_and_the_test_kit_log_in_as_producers_do(work: Work) -> None:
    with Server(binaries.valkey(), "--requirepass", SECRET) as server:
        url = server.url.replace(f":{SECRET}@", "")
        jobs = Jobs("q", redis_url=url, credential_provider=lambda _: (None, SECRET))

        @jobs.job
        async def double(number: int) -> int:
            return number * 2

        async with work(jobs):
            assert await (await double.add(1)).result(timeout_s=60) == 2
        await double.add(2)
        assert_enqueued(double, 2)
        [run] = await jobs.run_due()
        assert run.result == 4
        await jobs.close()


def test_workers_share_what_they_have_in_common_with_producers() -> None:
    """What is the same for both, or the one does not see what the other does."""
    of_queue, of_worker = (set(signature(each).parameters) for each in (Queue, Worker))
    assert set(SHARED) == of_queue & of_worker - {"redis_url", "patience_s"}
    jobs = Jobs("q", redis_url="redis://127.0.0.1:1", tls=True, group="other", dialect="engine")
    assert "rediss://127.0.0.1:1" in str(jobs.worker().endpoint)
    assert jobs.worker(tls=False).endpoint.tls is None


def test_an_option_that_there_is_not_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="max_len"):
        Jobs("q", max_len=7)


def in_child(act: Callable[[], object]) -> int:
    """Call *act* in a forked copy of this process; return its exit code."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            # Nothing of pytest must run twice.
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def test_both_processes_add_after_a_fork(jobs: Jobs, work: Work) -> None:
    @jobs.job
    async def double(number: int) -> int:
        return number * 2

    def add(first: int) -> None:
        for number in range(first, first + 20):
            double.options(job_id=f"n-{number}").add_sync(number)

    def add_async() -> None:
        asyncio.run(add_one(60))

    async def add_one(number: int) -> None:
        await double.options(job_id=f"n-{number}").add(number)
        await jobs.close()

    # Connected before the fork: parent and child must not share the socket.
    add(0)
    assert await double.handle("n-0").progress() is None
    assert in_child(lambda: add(20)) == 0
    add(40)
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(None, in_child, add_async) == 0
    async with work(jobs):
        for number in range(61):
            assert await double.handle(f"n-{number}").result(timeout_s=60) == number * 2
