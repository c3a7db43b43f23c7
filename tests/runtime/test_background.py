"""Background work goes on after errors that nobody expected."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tambomq.runtime.background import keep_running


async def test_work_that_raises_is_logged_and_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = iter([RuntimeError("one"), KeyError("two")])

    async def work() -> None:
        if error := next(errors, None):
            raise error

    with caplog.at_level(logging.ERROR):
        await keep_running(work)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert all("work failed; starting it again" in each for each in messages)
    raised = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [type(error) for error in raised] == [RuntimeError, KeyError]


async def test_work_is_cancelled_with_its_task() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    task = asyncio.create_task(keep_running(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]
