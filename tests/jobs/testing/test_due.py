"""`Jobs.run_due`: what is due runs in this process, with time moved forward."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tambomq.errors import RemoteProtocolError
from tambomq.jobs import CancelJob, Context, Jobs
from tambomq.testing import JobRun, assert_enqueued, assert_not_enqueued
from tests.servers import Server, eventually_async


def outcomes(runs: list[JobRun]) -> list[tuple[str, int, str]]:
    return [(run.name, run.attempt, run.outcome) for run in runs]


async def test_waiting_jobs_run_and_delayed_ones_only_when_time_has_come(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:

        @mail.job
        async def welcome(to: str) -> str:
            return f"hello {to}"

        await welcome.options(delay_s=7200).add(to="late")
        await welcome.options(delay_s=3600).add(to="soon")
        await welcome.add(to="now")
        [run] = await mail.run_due()
        assert (run.result, run.outcome) == ("hello now", "completed")
        [run] = await mail.run_due(now=3600)
        assert run.result == "hello soon"
        assert_enqueued(welcome, to="late")
        [run] = await mail.run_due(now=datetime.now(UTC) + timedelta(days=1))
        assert run.result == "hello late"
        assert_not_enqueued(welcome)
        assert await mail.run_due(now=86_400) == []


async def test_retries_run_at_their_own_time(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:

        @mail.job(attempts=3, backoff=20_000)
        async def fail() -> None:
            raise ValueError("no")

        await fail.options(delay_s=60).add()
        assert outcomes(await mail.run_due(now=70)) == [("fail", 1, "retried")]
        # Due 60 s + 20 s from now, and not before.
        assert await mail.run_due(now=75) == []
        runs = await mail.run_due(now=5000)
        assert outcomes(runs) == [("fail", 2, "retried"), ("fail", 3, "dead")]
        assert runs[1].at - runs[0].at >= timedelta(seconds=20)
        assert isinstance(runs[0].error, ValueError)
        [letter] = await mail.queue.peek_dlq()
        assert letter.error == "ValueError: no"


async def test_jobs_added_by_a_job_are_due_relative_to_its_time(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:

        @mail.job
        async def second() -> None: ...

        @mail.job
        async def third() -> None: ...

        @mail.job
        async def first() -> None:
            await second.add()
            await third.options(delay_s=60).add()

        await first.options(delay_s=3600).add()
        assert [run.name for run in await mail.run_due(now=3630)] == ["first", "second"]
        assert [run.name for run in await mail.run_due(now=3700)] == ["third"]


async def test_recurring_jobs_fire_once_for_each_of_their_times(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:

        @mail.every(600)
        async def tick() -> None: ...

        assert await mail.run_due() == []
        assert [run.name for run in await mail.run_due(now=3000)].count("tick") == 5
        names = [run.name for run in await mail.run_due(now=9000)]
        assert names.count("tick") == 10
        assert await mail.run_due(now=9000) == []


async def test_a_cron_job_fires_at_its_hour(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:

        @mail.cron("0 9 * * *", tz="Europe/Berlin")
        def report() -> None: ...

        runs = await mail.run_due(now=3 * 86_400)
        berlin = ZoneInfo("Europe/Berlin")
        assert [run.at.astimezone(berlin).hour for run in runs] == [9, 9, 9]


async def test_a_job_that_was_cancelled_while_it_ran_is_cancelled(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:

        @mail.job
        async def stop(ctx: Context) -> str:
            assert await stop.handle(ctx.job_id).cancel("not needed")
            return "done all the same"

        await stop.add()
        assert outcomes(await mail.run_due()) == [("stop", 1, "cancelled")]


async def test_a_cancelled_job_is_neither_retried_nor_dead(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:

        @mail.job
        async def stop() -> None:
            raise CancelJob("no longer wanted")

        await stop.add()
        assert outcomes(await mail.run_due()) == [("stop", 1, "cancelled")]
        assert await mail.run_due(now=86_400) == []
        assert await mail.queue.peek_dlq() == []


async def test_a_result_that_is_not_of_its_type_is_reported_and_not_retried(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:

        @mail.job
        async def lie() -> int:
            return "text"  # type: ignore[return-value]

        job = await lie.add()
        [run] = await mail.run_due(now=3600)
        assert (run.outcome, run.result) == ("completed", None)
        assert str(run.error) == "the result of job 'lie' does not fit: $: expected int, got str"
        # What a caller would get.
        with pytest.raises(RemoteProtocolError, match="does not fit"):
            await job.result()


def test_a_test_need_be_no_coroutine(server: Server) -> None:
    mail = Jobs("mail", redis_url=server.url)

    @mail.job
    def welcome(ctx: Context, to: str) -> str:
        ctx.log("sent")
        return to

    handle = welcome.add_sync(to="ada")
    [run] = mail.run_due_sync()
    assert run.result == "ada"
    assert handle.logs_sync() == ["sent"]
    mail.close_sync()


async def test_an_endless_chain_of_jobs_is_stopped(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:

        @mail.job
        async def again() -> None:
            await again.add()

        await again.add()
        with pytest.raises(RuntimeError, match="more than 10 runs, the last of 'again'"):
            await mail.run_due(max_runs=10)


async def test_runs_count_over_all_times_at_which_something_is_due(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:

        @mail.every(3600)
        async def hourly() -> None: ...

        assert len(await mail.run_due(now=3.5 * 3600, max_runs=3)) == 3
        with pytest.raises(RuntimeError, match="more than 2 runs, the last of 'hourly'"):
            await mail.run_due(now=24 * 3600, max_runs=2)


async def test_a_queue_that_a_worker_leads_is_left_alone(server: Server) -> None:
    async with Jobs("mail", redis_url=server.url) as mail:
        worker = mail.worker()
        running = asyncio.create_task(worker.run())

        async def refused() -> bool:
            try:
                await mail.run_due()
            except RuntimeError as error:
                return "needs the queue for itself" in str(error)
            return False

        await eventually_async(refused, within_s=20)
        await worker.close()
        await running
