"""Calls of the typed API that type checkers must accept. Read by them, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, assert_type

from tambomq.jobs import INJECTED, Context, JobHandle, Jobs


@dataclass
class Receipt:
    to: str


class Database: ...


mail = Jobs("mail")


@mail.job
async def welcome(to: str, *, lang: str = "en") -> Receipt:
    return Receipt(to)


@mail.job(attempts=5, timeout_s=30, retry_on=(OSError,))
async def with_context(ctx: Context, to: str) -> int:
    await ctx.progress({"sent": 1})
    if ctx.attempt > 2:
        ctx.retry_in(60, "busy")
    return 1


@mail.job(process=True)
def add_up(numbers: list[int], db: Database = INJECTED) -> int:
    return sum(numbers)


@mail.cron("0 9 * * MON-FRI", tz="Europe/Berlin")
def report() -> None: ...


@mail.every(60, unless_queued=False)
async def tick(ctx: Context) -> None: ...


@mail.middleware
async def logged(ctx: Context) -> AsyncIterator[None]:
    yield


@mail.on_start
async def opened(state: dict[str, Any]) -> None: ...


@mail.provide
def database() -> Database:
    return Database()


async def main() -> None:
    job = await welcome.add("ada@example.com", lang="de")
    assert_type(job, JobHandle[Receipt])
    assert_type(await job.result(), Receipt)
    assert_type(await welcome(to="ada@example.com"), Receipt)
    assert_type(add_up([1, 2]), int)
    assert_type(await (await with_context.add(to="ada@example.com")).result(timeout_s=3), int)
    assert_type((await add_up.options(delay_s=60).add(numbers=[1])).id, str)
    assert_type(add_up.add_sync([1]).result_sync(), int)
    assert_type(
        await mail.add_many([welcome.call("a"), welcome.call("b")]), list[JobHandle[Receipt]]
    )
    await report.add()
    await tick.add()
    await mail.worker(concurrency=10).run()
