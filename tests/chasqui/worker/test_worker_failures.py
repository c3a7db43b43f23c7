"""A handler's error appears in the log, in the dead letter and to callers awaiting the result."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job, Queue
from tambomq.chasqui.keys import Keys
from tambomq.errors import JobFailed
from tambomq.failures import MAX_TRACEBACK
from tests.chasqui.conftest import Work
from tests.chasqui.working import buried


async def no_key(job: Job) -> Any:
    return job.data["to"]


def no_key_in_a_thread(job: Job) -> Any:
    return job.data["to"]


@pytest.mark.parametrize("handler", [no_key, no_key_in_a_thread])
async def test_a_dead_letter_has_the_error_and_its_traceback(
    queue: Queue, work: Work, handler: Any
) -> None:
    await queue.add("mail", {}, attempts=1)
    async with work(handler) as worker:
        await buried(worker, 1)
    [letter] = await queue.peek_dlq()
    assert (letter.detail, letter.error_type, letter.error) == (
        "'to'",
        "KeyError",
        "KeyError: 'to'",
    )
    assert letter.traceback is not None
    head, place, *_ = letter.traceback.splitlines()
    assert head == "Traceback (most recent call last):"
    assert f'"{__file__}"' in place
    assert f"in {handler.__name__}" in place


async def test_the_stored_traceback_has_a_bounded_length(queue: Queue, work: Work) -> None:
    async def loud(_: Job) -> None:
        raise ValueError("\udcff" + "x" * 1_000_000)

    await queue.add("mail", {}, attempts=1)
    async with work(loud) as worker:
        await buried(worker, 1)
    [letter] = await queue.peek_dlq()
    assert len(letter.traceback or "") <= MAX_TRACEBACK + len("\\udcff")
    assert "in loud" in (letter.traceback or "")


async def test_a_failed_run_is_a_warning_and_its_repeats_are_counted(
    queue: Queue, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = await queue.add_bulk([{"name": "mail", "data": {}, "attempts": 1}] * 20)
    async with work(no_key, concurrency=1) as worker:
        await buried(worker, 20)
    first, *others = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert first.getMessage() == (
        f"job {jobs[0].id!r} of queue {queue.name!r} failed in run 1: KeyError: 'to'"
    )
    assert first.exc_info is not None
    assert 'return job.data["to"]' in caplog.text
    assert "failed 19 more times" in others[-1].getMessage()
    dead = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "retries_exhausted: KeyError: 'to'" in dead[0].getMessage()


async def test_waiting_for_the_result_raises_with_the_handlers_error(
    queue: Queue, work: Work, keys: Keys, blocking: BlockingQueue
) -> None:
    job = await queue.add("mail", {}, attempts=1)
    async with work(no_key) as worker:
        await buried(worker, 1)
        with pytest.raises(JobFailed, match="retries_exhausted: KeyError: 'to'") as caught:
            await job.wait_for_result(timeout=60)
    error = caught.value
    assert (error.reason, error.error_type, error.detail) == (
        *("retries_exhausted", "KeyError"),
        "'to'",
    )
    assert "in no_key" in error.traceback
    assert any("in no_key" in note for note in error.__notes__)
    with pytest.raises(JobFailed, match="KeyError: 'to'"):
        blocking.wait_for_result(job.id, timeout=60)


async def test_waiting_for_a_dead_job_fails_without_its_letter_too(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    job = await queue.add("mail", {}, attempts=1)
    async with work(no_key) as worker:
        await buried(worker, 1)
    db.delete(keys.dlq)
    with pytest.raises(JobFailed, match=r"is dead: retries_exhausted$") as caught:
        await job.wait_for_result(timeout=60)
    assert (caught.value.error_type, caught.value.traceback) == ("", "")
