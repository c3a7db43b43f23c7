"""Typed jobs from end to end: added with checked arguments, run, and their results read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from tambomq.errors import InvalidArguments, InvalidFormat, JobFailed
from tambomq.jobs import Context, Jobs
from tests.jobs.conftest import Work
from tests.jobs.shop import Address, Item, Receipt, Tone
from tests.servers import eventually_async


async def test_a_result_has_the_type_that_its_function_returned(jobs: Jobs, work: Work) -> None:
    @jobs.job
    async def welcome(to: str, *, lang: str = "en") -> Receipt:
        return Receipt(f"{to}/{lang}", datetime(2026, 1, 2, tzinfo=UTC))

    async with work(jobs):
        job = await welcome.add("ada", lang="de")
        assert await job.result() == Receipt("ada/de", datetime(2026, 1, 2, tzinfo=UTC))
        later = await welcome.options(job_id="w-7").add(to="bob")
        assert later.id == "w-7"
        assert later.added
        assert (await welcome.handle("w-7").result()).to == "bob/en"
        assert not (await welcome.options(job_id="w-7").add(to="bob")).added


async def test_arguments_of_every_kind_come_back_as_they_were(jobs: Jobs, work: Work) -> None:
    seen: list[Any] = []

    @jobs.job
    async def order(
        items: list[Item], when: datetime, tone: Tone, ship_to: Address, raw: bytes, /
    ) -> None:
        seen.extend((items, when, tone, ship_to, raw))

    given = (
        [Item(uuid4(), Decimal("9.90"), ["new"])],
        datetime(2026, 1, 2, tzinfo=UTC),
        Tone.COLD,
        Address(street="Main St"),
        b"\0\xff",
    )
    async with work(jobs):
        await (await order.add(*given)).result()
    assert tuple(seen) == given


async def test_the_payload_is_a_plain_map_of_what_was_given(jobs: Jobs) -> None:
    @jobs.job
    async def order(item: Item, tone: Tone, lang: str = "en", **more: int) -> None: ...

    sku = uuid4()
    call = order.call(Item(sku, Decimal(1)), Tone.WARM, extra=3)
    item = {"sku": str(sku), "price": "1", "tags": []}
    assert call.payload == {"item": item, "tone": "warm", "extra": 3}


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((5,), {}, r"\$\.to: expected str, got int"),
        ((), {}, r"\$\.to: missing"),
        (("a",), {"to": "b"}, r"\$\.to: given twice"),
        (("a", "b"), {}, "takes 1 by position, got 2"),
        (("a",), {"language": "de"}, r"\$\.language: unknown"),
        (("a",), {"items": [Item("no", Decimal(1))]}, r"\$\.items\[0\]\.sku: invalid UUID"),  # type: ignore[arg-type]
        (("a",), {"any": object()}, "object cannot be stored"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_and_nothing_is_sent(
    jobs: Jobs, args: tuple[Any, ...], kwargs: dict[str, Any], why: str
) -> None:
    @jobs.job
    async def welcome(to: str, *, items: list[Item] | None = None, any: Any = None) -> None: ...  # noqa: A002

    with pytest.raises(InvalidArguments, match=why):
        await welcome.add(*args, **kwargs)
    with pytest.raises(TypeError):
        welcome.add_sync(*args, **kwargs)
    assert (await jobs.queue.get_job_counts()).waiting == 0


@pytest.mark.parametrize(
    ("name", "data", "detail"),
    [
        ("nix", {}, "unknown job 'nix'; this worker knows: welcome"),
        ("welcome", {"to": 5}, "$.to: expected str, got int"),
        ("welcome", {}, "$.to: missing"),
        ("welcome", {"to": "a", "cc": "b"}, "$.cc: unknown"),
        ("welcome", ["a"], "$: expected object, got array"),
        ("welcome", None, "$: expected object, got null"),
    ],
)
async def test_a_job_with_invalid_arguments_is_dead_lettered_with_their_path(
    jobs: Jobs, work: Work, name: str, data: Any, detail: str
) -> None:
    @jobs.job
    async def welcome(to: str) -> None:
        raise AssertionError(to)

    added = await jobs.queue.add(name, data)
    async with work(jobs):
        with pytest.raises(JobFailed) as failed:
            await added.wait_for_result()
    assert failed.value.reason == "unrecoverable"
    assert failed.value.detail.endswith(detail)


async def test_a_job_without_arguments_runs_without_a_payload(jobs: Jobs, work: Work) -> None:
    @jobs.job
    async def report(lang: str = "en") -> str:
        return lang

    added = await jobs.queue.add("report", None)
    async with work(jobs):
        assert await added.wait_for_result() == "en"


async def test_blocking_calls_do_what_the_others_do(jobs: Jobs, work: Work) -> None:
    @jobs.job(attempts=3)
    def add_up(ctx: Context, numbers: list[int]) -> int:
        ctx.log(f"run {ctx.attempt} in {threading.current_thread().name}")
        ctx.progress(50)
        return sum(numbers)

    def from_a_thread() -> None:
        job = add_up.add_sync(numbers=[1, 2])
        assert job.result_sync() == 3
        assert job.progress_sync() == 50
        assert job.logs_sync()[0].startswith(f"run 1 in job-{jobs.queue_name}")
        many = jobs.add_many_sync([add_up.call([n]) for n in range(5)])
        assert [each.result_sync() for each in many] == [0, 1, 2, 3, 4]

    async with work(jobs):
        await asyncio.to_thread(from_a_thread)


async def test_many_jobs_are_added_at_once(jobs: Jobs, work: Work) -> None:
    @jobs.job
    async def double(number: int) -> int:
        return 2 * number

    made = await jobs.add_many([double.call(n) for n in range(10)])
    async with work(jobs):
        assert [await job.result() for job in made] == [2 * n for n in range(10)]
    other = Jobs("other")
    with pytest.raises(InvalidFormat, match="of queue 'other'"):
        await other.add_many([double.call(1)])
    with pytest.raises(InvalidFormat, match="added by itself: it has debounce_s"):
        await jobs.add_many([double.options(job_id="a", debounce_s=1).call(1)])


async def no_generator(_: Context) -> None: ...


def no_async_generator(_: Context) -> Iterator[None]:
    yield


@pytest.mark.parametrize("wrong", [no_generator, no_async_generator, 3])
def test_middleware_that_could_not_surround_a_run_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidFormat, match="an async function that yields once"):
        Jobs("q").middleware(wrong)


async def test_start_hooks_set_the_state_and_middleware_wraps_each_run(
    jobs: Jobs, work: Work
) -> None:
    seen: list[str] = []

    @jobs.on_start
    async def opened(state: dict[str, Any]) -> None:
        state["db"] = "database"

    @jobs.on_stop
    def closed() -> None:
        seen.append("closed")

    @jobs.middleware
    async def around(ctx: Context) -> Any:
        seen.append(f"before {ctx.name}")
        try:
            yield
        except ValueError as error:
            seen.append(f"raised {error}")
            raise
        seen.append("after")

    @jobs.job(retry_on=(OSError,))
    async def query(ctx: Context, fail: bool) -> str:
        if fail:
            raise ValueError("no")
        return str(ctx.state["db"])

    async with work(jobs):
        assert await (await query.add(fail=False)).result() == "database"
        with pytest.raises(JobFailed, match=r"ValueError: no \(not in retry_on\)"):
            await (await query.add(fail=True)).result()
        bad = await jobs.queue.add("query", {})
        with pytest.raises(JobFailed):
            await bad.wait_for_result()
    assert seen[:3] == ["before query", "after", "before query"]
    assert seen[-1] == "closed"


async def test_a_job_asks_to_run_again_later(jobs: Jobs, work: Work) -> None:
    @jobs.job
    async def poll(ctx: Context) -> int:
        if ctx.attempt < 3:
            ctx.retry_in(0.01, "not ready")
        return ctx.attempt

    async with work(jobs):
        assert await (await poll.add()).result() == 3


async def test_a_coroutine_that_takes_too_long_is_cancelled_and_retried(
    jobs: Jobs, work: Work
) -> None:
    ended: list[int] = []

    @jobs.job(timeout_s=0.05, retry_on=())
    async def slow(ctx: Context) -> int:
        try:
            if ctx.attempt == 1:
                await asyncio.Event().wait()
        finally:
            ended.append(ctx.attempt)
        return ctx.attempt

    async with work(jobs) as worker:
        assert await (await slow.add()).result() == 2
        assert worker.stats.retried == 1
    assert ended == [1, 2]


async def test_a_result_that_cannot_be_stored_is_no_reason_to_run_again(
    jobs: Jobs, work: Work
) -> None:
    @jobs.job
    async def make() -> object:
        return object()

    async with work(jobs) as worker:
        with pytest.raises(JobFailed, match="its result cannot be stored"):
            await (await make.add()).result()
        assert worker.stats.retried == 0


async def test_recurring_jobs_are_registered_once_and_fire(jobs: Jobs, work: Work) -> None:
    fired = asyncio.Event()

    @jobs.every(0.05)
    async def tick() -> None:
        fired.set()

    @jobs.cron("0 9 * * MON-FRI", tz="Europe/Berlin", unless_queued=False)
    def report() -> None: ...

    async with work(jobs, scheduler_tick_ms=20):
        await fired.wait()
        await eventually_async(lambda: has_both(jobs), within_s=20)
    first = {each.key: each for each in await jobs.queue.get_repeatable_jobs()}
    assert first.keys() == {"jobs:tick", "jobs:report"}
    async with work(jobs, scheduler_tick_ms=20):
        fired.clear()
        await fired.wait()
    again = {each.key: each for each in await jobs.queue.get_repeatable_jobs()}
    assert again["jobs:report"] == first["jobs:report"]
    assert (again["jobs:tick"].unless_queued, again["jobs:report"].unless_queued) == (True, False)


async def test_a_job_can_be_debounced_and_throttled(jobs: Jobs, work: Work) -> None:
    @jobs.job
    async def double(number: int) -> int:
        return number * 2

    once = double.options(job_id="a", throttle_s=3600)
    assert [(await once.add(n)).added for n in (1, 2)] == [True, False]
    late, soon = (double.options(job_id="b", debounce_s=s) for s in (3600, 0.01))
    assert [(await each.add(n)).added for n, each in enumerate((late, late, soon))] == [
        True,
        False,
        False,
    ]
    async with work(jobs):
        assert await double.handle("a").result(timeout_s=60) == 2
        assert await double.handle("b").result(timeout_s=60) == 4


async def has_both(jobs: Jobs) -> bool:
    return len(await jobs.queue.get_repeatable_jobs()) == 2


def test_star_args_are_refused_where_they_are_written() -> None:
    with pytest.raises(InvalidFormat, match=r"replace \*names by a list"):

        @Jobs("q").job
        async def welcome_guest(*names: str) -> None: ...


def test_two_jobs_of_one_name_are_refused() -> None:
    jobs = Jobs("q")
    jobs.job(name="welcome_guest")(lambda: None)
    with pytest.raises(InvalidFormat, match="has this name"):
        jobs.job(name="welcome_guest")(lambda: None)


def test_a_type_that_cannot_be_stored_is_refused_before_a_job_is_taken() -> None:
    jobs = Jobs("q")

    @jobs.job
    async def run(lock: threading.Thread) -> None: ...

    with pytest.raises(InvalidFormat, match="parameter lock"):
        jobs.worker()
