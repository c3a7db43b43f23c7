"""Functions in processes: their results, reports and errors, and every way to die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tambomq.errors import InvalidFormat, JobFailed
from tambomq.ids import letters
from tambomq.jobs import Jobs
from tests.jobs import shop as shops
from tests.jobs.conftest import Work
from tests.servers import Server, eventually_async


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
            (shops.leave.call("interrupt"), "the handler raised KeyboardInterrupt"),
            (shops.leave.call("_exit"), "ended with status 4"),
            (shops.leave.call("kill"), "was killed by SIGKILL"),
            (shops.hang.call(), "took longer than timeout_s=0.3"),
            (shops.fail.call("plain"), "ValueError: no"),
            (shops.fail.call("odd"), "Unpicklable: not pickled"),
        ):
            with pytest.raises(JobFailed, match=why):
                await (await call.add()).result(timeout_s=60)
        assert await (await shops.awaited.add(1)).result(timeout_s=60) == 2


async def test_a_report_that_is_refused_raises_in_the_process(shop: Jobs, work: Work) -> None:
    async with work(shop, processes=1):
        said = await (await shops.refused.add()).result(timeout_s=60)
        assert said == "InvalidValue: progress must be ≤ 8192 of JSON, not '10002 bytes'"
        assert await (await shops.awaited.add(1)).result(timeout_s=60) == 2


async def test_an_idle_process_that_was_killed_costs_no_attempt(shop: Jobs, work: Work) -> None:
    async with work(shop, processes=1):
        _, killed = await (await shops.pid_of.add("first")).result(timeout_s=60)
        os.kill(killed, signal.SIGKILL)
        # Until it is a zombie: nobody waits for it before the next job.
        await eventually_async(lambda: not running(killed), within_s=60)
        last = shops.pid_of.options(attempts=1)
        _, pid = await (await last.add("next")).result(timeout_s=60)
        assert pid != killed


def running(pid: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", f"{pid}"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return state != "" and not state.startswith("Z")


async def test_a_decision_counts_also_if_its_error_cannot_be_pickled(
    shop: Jobs, work: Work
) -> None:
    async with work(shop, processes=1) as worker:
        with pytest.raises(JobFailed, match="Declined: card 7: expired"):
            await (await shops.decide.add("decline")).result(timeout_s=60)
        assert worker.stats.retried == 0
        assert await (await shops.decide.add("busy")).result(timeout_s=60) == 2


async def test_a_function_that_forks_has_one_result(shop: Jobs, work: Work) -> None:
    async with work(shop, processes=1) as worker:
        pid = await (await shops.fork.add()).result(timeout_s=60)
        assert (await (await shops.pid_of.add("next")).result(timeout_s=60))[1] == pid
        assert worker.stats.failed == 0


async def test_a_process_has_hooks_and_providers_of_its_own(
    shop: Jobs, work: Work, tmp_path: Path
) -> None:
    async with work(shop, processes=1):
        sales = [await shops.sell.add(folder=str(tmp_path)) for _ in range(2)]
        pids = {pid for sale in sales for pid in await sale.result(timeout_s=60)}
        assert notes(tmp_path) == {}
    # It has ended with the worker: its stop hook ran, and what was provided is cleaned up.
    (pid,) = pids
    assert pid != os.getpid()
    assert notes(tmp_path) == {"hook": f"{pid}", "till": f"{pid} 2"}


def notes(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_function_that_other_processes_cannot_find_is_refused() -> None:
    jobs = Jobs("q")

    @jobs.job(process=True)
    def local() -> None: ...

    with pytest.raises(InvalidFormat, match="must be found as"):
        jobs.worker()


UNGUARDED = """
import asyncio

from tambomq.jobs import Jobs

jobs = Jobs("q")


@jobs.job(process=True, attempts=1)
def double(number: int) -> int:
    return 2 * number


async def main() -> None:
    worker = jobs.worker()
    running = asyncio.create_task(worker.run())
    job = await double.add(1)
    try:
        print(await job.result(timeout_s=60))
    finally:
        await worker.close()
        await running


{start}
"""


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("asyncio.run(main())", "do that below `if __name__ == '__main__':`"),
        ("if __name__ == '__main__': asyncio.run(main())", "2\n"),
    ],
)
def test_a_program_must_start_its_worker_in_its_main_part(
    server: Server, tmp_path: Path, start: str, said: str
) -> None:
    """Each process would start a worker, with processes of its own, and so on."""
    program = tmp_path / "app.py"
    program.write_text(UNGUARDED.format(start=start))
    ended = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"TAMBO_REDIS_URL": server.url},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert said in ended.stdout + ended.stderr
