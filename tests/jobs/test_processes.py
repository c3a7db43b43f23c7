"""Functions in processes: their results, reports and errors, and every way to die."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from tambomq.errors import InvalidFormat, JobFailed
from tambomq.ids import letters
from tambomq.jobs import Jobs
from tests.jobs import shop as shops
from tests.jobs.conftest import Work
from tests.servers import Server


@pytest.fixture
async def shop(server: Server) -> AsyncIterator[Jobs]:
    """The jobs of `tests.jobs.shop`, which other processes find by name."""
    shops.shop.redis_url = server.url
    yield shops.shop
    await shops.shop.close()


async def test_a_function_runs_in_another_process_and_reports_from_there(
    shop: Jobs, work: Work
) -> None:
    async with work(shop, processes=1):
        job = await shops.pid_of.add(f"job {letters(4)}")
        what, pid = await job.result(timeout_s=60)
        assert what.startswith("job ")
        assert pid != os.getpid()
        assert await job.progress() == 40
        assert await job.logs() == ["run 1"]
        assert await (await shops.awaited.add(1)).result(timeout_s=60) == 2
        again = await (await shops.pid_of.add("again")).result(timeout_s=60)
        assert again[1] == pid


async def test_a_process_that_dies_or_hangs_is_replaced(shop: Jobs, work: Work) -> None:
    async with work(shop, processes=1):
        for call, why in (
            (shops.leave.call("exit"), "SystemExit: 3"),
            (shops.leave.call("_exit"), "ended with status 4"),
            (shops.leave.call("kill"), "was killed by SIGKILL"),
            (shops.hang.call(), "took longer than timeout_s=0.3"),
            (shops.fail.call("plain"), "ValueError: no"),
            (shops.fail.call("odd"), "Unpicklable: not pickled"),
        ):
            with pytest.raises(JobFailed, match=why):
                await (await call.add()).result(timeout_s=60)
        assert await (await shops.awaited.add(1)).result(timeout_s=60) == 2


async def test_a_function_that_forks_has_one_result(shop: Jobs, work: Work) -> None:
    async with work(shop, processes=1) as worker:
        pid = await (await shops.fork.add()).result(timeout_s=60)
        assert (await (await shops.pid_of.add("next")).result(timeout_s=60))[1] == pid
        assert worker.stats.failed == 0


def test_a_function_that_other_processes_cannot_find_is_refused() -> None:
    jobs = Jobs("q")

    @jobs.job(process=True)
    def local() -> None: ...

    with pytest.raises(InvalidFormat, match="must be found as"):
        jobs.worker()
