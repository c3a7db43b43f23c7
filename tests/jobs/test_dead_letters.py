"""Dead letters of typed jobs: their traceback shows the user's own code, or nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tambomq.chasqui import DeadLetter
from tambomq.jobs import Jobs
from tests.jobs.conftest import Work
from tests.servers import eventually_async

FAR_OFF_S = 60


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


async def buried(jobs: Jobs, count: int) -> dict[str, str | None]:
    """The tracebacks of dead letters by the name of their jobs."""
    letters = list[DeadLetter]()

    async def are_there() -> bool:
        letters[:] = await jobs.queue.peek_dlq(count)
        return len(letters) == count

    await eventually_async(are_there, within_s=FAR_OFF_S)
    return {each.name: each.traceback for each in letters}


async def test_a_time_out_shows_where_the_function_was(
    jobs: Jobs, work: Work, release: threading.Event
) -> None:
    async def wait_for_reply() -> None:
        await asyncio.Event().wait()

    @jobs.job(timeout_s=0.05, attempts=1)
    async def hangs() -> None:
        await wait_for_reply()

    @jobs.job(timeout_s=0.05, attempts=1)
    def blocks() -> None:
        release.wait(FAR_OFF_S)

    async with work(jobs):
        await hangs.add()
        await blocks.add()
        found = await buried(jobs, 2)
        release.set()
    assert "await wait_for_reply()" in (found["hangs"] or "")
    assert "release.wait(FAR_OFF_S)" in (found["blocks"] or "")
    for trace in found.values():
        assert "/src/tambomq/" not in (trace or "")


async def test_a_decision_of_the_worker_shows_none_of_its_own_code(jobs: Jobs, work: Work) -> None:
    @jobs.job
    async def returns() -> object:
        return object()

    @jobs.job
    async def takes(number: int) -> None: ...

    async with work(jobs):
        await returns.add()
        await jobs.queue.add("unknown", {})
        await jobs.queue.add("takes", {"number": "x"})
        found = await buried(jobs, 3)
    assert found == {"returns": None, "unknown": None, "takes": None}


async def test_an_error_that_is_not_retried_shows_the_line_that_raised(
    jobs: Jobs, work: Work
) -> None:
    @jobs.job(retry_on=(KeyError,))
    async def refuses() -> None:
        raise ValueError("no such customer")

    async with work(jobs):
        await refuses.add()
        found = await buried(jobs, 1)
    assert 'raise ValueError("no such customer")' in (found["refuses"] or "")
    assert "/src/tambomq/" not in (found["refuses"] or "")
