"""`Jobs.test_job`: one function alone. None of these tests has a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from tambomq.errors import InvalidArguments, RemoteProtocolError
from tambomq.jobs import INJECTED, Context, Jobs, RetryIn


@dataclass
class Receipt:
    to: str
    at: datetime


class Database:
    name = "real"


NOWHERE = "redis://127.0.0.1:1"


def make() -> Jobs:
    return Jobs("mail", redis_url=NOWHERE)


async def test_a_function_runs_without_a_server_and_its_reports_are_recorded() -> None:
    mail = make()

    @mail.job
    async def welcome(ctx: Context, to: str, at: datetime) -> Receipt:
        await ctx.progress({"sent": 1})
        await ctx.log(f"to {to}")
        await ctx.progress(100)
        return Receipt(to, at)

    at = datetime(2026, 1, 1, tzinfo=UTC)
    run = await mail.test_job(welcome, to="ada", at=at)
    assert run.result == Receipt("ada", at)
    assert run.progress == [{"sent": 1}, 100]
    assert run.logs == ["to ada"]


def test_a_plain_function_runs_in_a_thread_and_a_test_need_be_no_coroutine() -> None:
    mail = make()

    @mail.job
    def welcome(ctx: Context, to: str) -> int:
        ctx.log(f"to {to}")
        ctx.progress(50)
        return ctx.attempt

    run = mail.test_job(welcome, to="ada").on_attempt(3).run_sync()
    assert (run.result, run.progress, run.logs) == (3, [50], ["to ada"])


async def test_what_the_function_raises_is_raised_and_its_reports_are_kept() -> None:
    mail = make()

    @mail.job
    async def welcome(ctx: Context) -> None:
        await ctx.log("busy")
        ctx.retry_in(60, "busy")

    trial = mail.test_job(welcome)
    with pytest.raises(RetryIn):
        await trial
    assert trial.logs == ["busy"]


def test_arguments_are_checked_as_by_add() -> None:
    mail = make()

    @mail.job
    async def welcome(to: str) -> None: ...

    with pytest.raises(InvalidArguments, match="to"):
        mail.test_job(welcome, to=7)  # type: ignore[arg-type]


async def test_middleware_and_hooks_run_when_asked_for() -> None:
    mail, order = make(), list[str]()

    @mail.middleware
    async def around(ctx: Context) -> AsyncIterator[None]:
        order.append(f"before {ctx.name}")
        yield
        order.append("after")

    @mail.on_start
    def start(state: dict[str, object]) -> None:
        state["db"] = "from the hook"

    @mail.on_stop
    def stop() -> None:
        order.append("stopped")

    @mail.job
    async def welcome(ctx: Context) -> str:
        order.append("run")
        return str(ctx.state.get("db"))

    assert (await mail.test_job(welcome)).result == "None"
    assert order == ["run"]
    order.clear()
    run = await mail.test_job(welcome).with_middleware().with_hooks()
    assert run.result == "from the hook"
    assert order == ["before welcome", "run", "after", "stopped"]
    assert (await mail.test_job(welcome).with_state(db="a fake")).result == "a fake"


async def test_what_providers_make_can_be_replaced() -> None:
    mail = make()

    @mail.provide
    def database() -> Database:
        raise AssertionError("the real one")

    @mail.job
    async def welcome(db: Database) -> str:
        return db.name

    fake = Database()
    fake.name = "fake"
    run = await mail.test_job(welcome).with_provided(Database, fake)  # type: ignore[call-arg]
    assert run.result == "fake"


async def test_a_function_for_a_process_runs_in_this_one() -> None:
    mail, calls = make(), list[str]()

    @mail.job(process=True)
    def resize(name: str) -> str:
        calls.append(name)
        return name.upper()

    assert (await mail.test_job(resize, name="cat")).result == "CAT"
    assert calls == ["cat"]


async def test_a_provided_value_is_injected_into_a_process_job() -> None:
    mail = make()

    @mail.provide
    def database() -> Database:
        return Database()

    @mail.job(process=True)
    def describe(ctx: Context, db: Database = INJECTED) -> str:
        return f"{db.name} {ctx.attempt}"

    assert (await mail.test_job(describe)).result == "real 1"


async def test_a_result_that_is_not_of_its_type_is_an_error() -> None:
    mail = make()

    @mail.job
    async def lie() -> int:
        return "text"  # type: ignore[return-value]

    with pytest.raises(RemoteProtocolError, match=r"job 'lie' does not fit: .* got str"):
        await mail.test_job(lie)


async def test_a_provider_of_the_worker_is_called_only_for_a_function_that_needs_it() -> None:
    mail, made = make(), list[str]()

    @mail.provide(scope="worker")
    async def database() -> AsyncIterator[Database]:
        made.append("opened")
        yield Database()
        made.append("closed")

    @mail.job
    async def simple() -> None: ...

    @mail.job
    async def needs(database: Database = INJECTED) -> str:
        return database.name

    await mail.test_job(simple)
    assert made == []
    assert (await mail.test_job(needs)).result == "real"
    assert made == ["opened", "closed"]
