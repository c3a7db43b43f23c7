"""Parameters that are filled in by their type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tambomq.errors import InvalidFormat
from tambomq.jobs import INJECTED, Context, Jobs
from tests.jobs.conftest import Work


class Pool:
    def __init__(self) -> None:
        self.seen: list[str] = []


class Database:
    def __init__(self, pool: Pool, job: str) -> None:
        self.pool, self.job = pool, job


class Unknown: ...


async def test_injected_values_are_made_for_a_run_and_cleaned_up(jobs: Jobs, work: Work) -> None:
    pools: list[Pool] = []

    @jobs.provide(scope="worker")
    async def pool() -> AsyncIterator[Pool]:
        pools.append(Pool())
        yield pools[-1]
        pools[-1].seen.append("closed")

    @jobs.provide
    def database(ctx: Context, pool: Pool) -> Iterator[Database]:
        pool.seen.append("open")
        yield Database(pool, ctx.name)
        pool.seen.append("done")

    @jobs.job
    async def query(table: str, db: Database = INJECTED) -> str:
        return f"{db.job} {table}"

    @jobs.job
    def in_thread(pool: Pool = INJECTED, *, table: str) -> int:
        return len(pools) if pool is pools[0] else -1

    async with work(jobs):
        assert await (await query.add("users")).result() == "query users"
        assert await (await in_thread.add(table="x")).result() == 1
    assert pools[0].seen == ["open", "done", "closed"]


def test_a_provider_says_what_it_provides_and_finds_what_it_needs() -> None:
    jobs = Jobs("q")
    with pytest.raises(InvalidFormat, match="return annotation"):
        jobs.provide(lambda: 1)

    def needy(other: Unknown) -> Database: ...  # type: ignore[empty-body]

    with pytest.raises(InvalidFormat, match="nothing provides its parameter other"):
        jobs.provide(needy)


def test_a_parameter_that_nothing_provides_is_refused() -> None:
    jobs = Jobs("q")

    @jobs.job
    async def run(other: Unknown = INJECTED) -> None: ...

    with pytest.raises(InvalidFormat, match="nothing provides"):
        jobs.worker()


async def test_a_provider_that_fails_to_clean_up_does_not_fail_the_worker(
    jobs: Jobs, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    @jobs.provide(scope="worker")
    async def pool() -> AsyncIterator[Pool]:
        yield Pool()
        raise RuntimeError("already closed")

    @jobs.job
    async def query(pool: Pool = INJECTED) -> int:
        return len(pool.seen)

    async with work(jobs):
        assert await (await query.add()).result(timeout_s=60) == 0
    assert f"a provider of queue {jobs.queue_name!r} failed to clean up" in caplog.text
    assert "already closed" in caplog.text
