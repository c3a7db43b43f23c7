"""Handlers of every kind, and whatever they return or raise: the worker goes on."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Queue
from tambomq.chasqui.keys import Keys
from tests.chasqui import working
from tests.chasqui.conftest import Work
from tests.chasqui.working import buried, completed, emitted_events, entries
from tests.servers import eventually_async

server = working.server

BACKOFF_MS = 1


# ── kinds ────────────────────────────────────────────────────────────────────


async def on_the_loop(job: Job) -> Any:
    await asyncio.sleep(0)
    return ["loop" if threading.current_thread() is threading.main_thread() else "thread", job.data]


def in_a_thread(job: Job) -> Any:
    return ["loop" if threading.current_thread() is threading.main_thread() else "thread", job.data]


class HandlerMethods:
    async def on_the_loop(self, job: Job) -> Any:
        return await on_the_loop(job)

    def in_a_thread(self, job: Job) -> Any:
        return in_a_thread(job)


class CalledAsync:
    async def __call__(self, job: Job) -> Any:
        return await on_the_loop(job)


class Called:
    def __call__(self, job: Job) -> Any:
        return in_a_thread(job)


def second(_: str, job: Job) -> Any:
    return in_a_thread(job)


async def second_async(_: str, job: Job) -> Any:
    return await on_the_loop(job)


@functools.wraps(on_the_loop)
def decorated(job: Job) -> Awaitable[Any]:
    return on_the_loop(job)


@pytest.mark.parametrize(
    ("handler", "context"),
    [
        pytest.param(on_the_loop, "loop", id="coroutine function"),
        pytest.param(HandlerMethods().on_the_loop, "loop", id="async method"),
        pytest.param(CalledAsync(), "loop", id="async callable"),
        pytest.param(functools.partial(second_async, ""), "loop", id="async partial"),
        pytest.param(decorated, "loop", id="plain function around a coroutine function"),
        pytest.param(lambda job: second_async("", job), "loop", id="lambda around one"),
        pytest.param(in_a_thread, "thread", id="function"),
        pytest.param(HandlerMethods().in_a_thread, "thread", id="method"),
        pytest.param(Called(), "thread", id="callable"),
        pytest.param(functools.partial(second, ""), "thread", id="partial"),
    ],
)
async def test_a_handler_of_any_kind_is_run_where_it_belongs(
    queue: Queue, work: Work, handler: Any, context: str
) -> None:
    job = await queue.add("job", 7)
    async with work(handler, store_results=True) as worker:
        await completed(worker, 1)
    assert await queue.get_job_result(job.id) == [context, 7]


async def test_plain_functions_run_as_many_at_once_as_the_concurrency(
    queue: Queue, work: Work
) -> None:
    together = threading.Barrier(5)

    def handler(_: Job) -> None:
        together.wait(60)

    await queue.add_bulk([{"name": "job", "data": None}] * 10)
    async with work(handler, concurrency=5) as worker:
        await completed(worker, 10)
    assert worker.stats.failed == 0


async def test_handlers_that_never_wait_let_others_have_the_loop(queue: Queue, work: Work) -> None:
    turns = 0

    async def handler(_: Job) -> None:
        pass

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await queue.add_bulk([{"name": "job", "data": None}] * 2000)
    counting = asyncio.create_task(count())
    async with work(handler, concurrency=1) as worker:
        await completed(worker, 2000)
    counting.cancel()
    assert turns > 2000 // 100


# ── what they return ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [False, 0, [], "", {}, b"", 0.0, {"a": [1, None]}, "ünï"])
async def test_falsy_results_are_kept_too(queue: Queue, work: Work, value: Any) -> None:
    async def handler(_: Job) -> Any:
        return value

    job = await queue.add("job", None)
    async with work(handler, store_results=True) as worker:
        await completed(worker, 1)
    kept = await queue.get_job_result(job.id)
    assert (kept, type(kept)) == (value, type(value))


async def test_a_handler_that_returns_none_stores_no_result(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async def handler(_: Job) -> None:
        return None

    job = await queue.add("job", None)
    async with work(handler, store_results=True) as worker:
        await completed(worker, 1)
    assert not db.exists(keys.result(job.id))


async def test_nothing_is_kept_by_a_worker_that_keeps_no_results(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async def handler(_: Job) -> Any:
        return object()

    job = await queue.add("job", None)
    async with work(handler) as worker:
        await completed(worker, 1)
    assert not db.exists(keys.result(job.id))


@pytest.mark.parametrize("value", [{object()}, [1j], 2**70, "\udcff"], ids=type)
async def test_a_value_that_cannot_be_kept_is_a_failure_and_is_tried_again(
    queue: Queue, work: Work, value: Any
) -> None:
    async def handler(job: Job) -> Any:
        return value if job.attempt == 1 else "fine"

    job = await queue.add("job", None, backoff=BACKOFF_MS)
    async with work(handler, store_results=True) as worker:
        await completed(worker, 1)
    assert (worker.stats.failed, worker.stats.retried) == (1, 1)
    assert await queue.get_job_result(job.id) == "fine"


# ── what they raise ──────────────────────────────────────────────────────────


class Odd(BaseException):
    pass


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def exits() -> None:
    sys.exit("bad input")


def stops() -> None:
    next(iter(()))


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


RAISED: list[Any] = [
    pytest.param(raising(ValueError("boom")), "boom", id="error"),
    pytest.param(raising(ValueError()), "", id="error that says nothing"),
    pytest.param(raising(asyncio.CancelledError()), "", id="CancelledError"),
    pytest.param(raising(TimeoutError("late")), "late", id="TimeoutError"),
    pytest.param(raising(Odd("odd")), "odd", id="BaseException"),
    pytest.param(exits, "bad input", id="sys.exit"),
    pytest.param(raising(Speechless()), "Speechless", id="error whose str fails"),
    pytest.param(raising(ValueError("a\nb\0é\udcff")), "a\nb\0é\\udcff", id="odd text"),
    pytest.param(
        raising(ExceptionGroup("many", [ValueError("x")])), "many (1 sub-exception)", id="group"
    ),
]


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize(("act", "reason"), RAISED)
async def test_any_exception_of_a_handler_is_a_failure_and_is_retried(
    queue: Queue,
    work: Work,
    db: redis.Redis,
    keys: Keys,
    act: Callable[[], None],
    reason: str,
    kind: str,
) -> None:
    def in_thread(job: Job) -> None:
        if job.attempt == 1:
            act()

    async def on_loop(job: Job) -> None:
        in_thread(job)

    await queue.add("job", None, backoff=BACKOFF_MS)
    async with work(on_loop if kind == "async" else in_thread, concurrency=1) as worker:
        await completed(worker, 1)
    assert (worker.stats.failed, worker.stats.retried, worker.stats.lost) == (1, 1, 0)
    (failed,) = emitted_events(db, keys, "failed")
    assert failed["reason"] == reason


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_an_iterator_that_has_ended_fails_the_job_and_keeps_no_runner(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, kind: str
) -> None:
    # No coroutine and no future can carry a StopIteration.
    def in_thread(_: Job) -> None:
        stops()

    async def on_loop(_: Job) -> None:
        stops()

    await queue.add_bulk([{"name": "job", "data": None}] * 3)
    handler = on_loop if kind == "async" else in_thread
    async with work(handler, concurrency=1, max_attempts=1) as worker:
        await buried(worker, 3)
    assert all("StopIteration" in letter["detail"] for letter in entries(db, keys.dlq))


async def test_an_interrupt_raised_in_a_thread_fails_its_job_and_no_other(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    """Ctrl-C reaches the main thread alone: here it is the handler's own doing."""

    def handler(job: Job) -> str:
        if job.name == "interrupts":
            raise KeyboardInterrupt
        return "ran"

    await queue.add("interrupts", None)
    await queue.add("other", None)
    async with work(handler, concurrency=1, max_attempts=1) as worker:
        await buried(worker, 1)
        await completed(worker, 1)
    (letter,) = entries(db, keys.dlq)
    assert letter["detail"] == "the handler raised KeyboardInterrupt"


async def test_a_handler_that_cancels_its_own_task_scope_has_failed(
    queue: Queue, work: Work
) -> None:
    async def handler(job: Job) -> None:
        if job.attempt == 1:
            inner = asyncio.ensure_future(asyncio.Event().wait())
            inner.cancel()
            await inner

    await queue.add("job", None, backoff=BACKOFF_MS)
    async with work(handler) as worker:
        await completed(worker, 1)
    assert worker.stats.failed == 1


async def test_a_handler_may_limit_its_own_time(queue: Queue, work: Work) -> None:
    async def handler(job: Job) -> None:
        async with asyncio.timeout(0.02):
            if job.attempt == 1:
                await asyncio.Event().wait()

    await queue.add("job", None, backoff=BACKOFF_MS)
    async with work(handler) as worker:
        await completed(worker, 1)
    assert worker.stats.failed == 1


@pytest.mark.parametrize("how", ["waits", "returns", "swallows"])
async def test_a_handler_that_cancels_its_own_task_costs_no_runner(
    queue: Queue, work: Work, how: str
) -> None:
    left: list[int] = []

    async def handler(job: Job) -> None:
        task = asyncio.current_task()
        assert task is not None
        left.append(task.cancelling())
        if job.data == "cancels" and job.attempt == 1:
            task.cancel()
            if how == "swallows":
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                # Longer than a turn of a runner.
                await asyncio.sleep(0.002)
            elif how == "waits":
                await asyncio.Event().wait()

    async with work(handler, concurrency=1) as worker:
        for count in range(1, 4):
            await queue.add("job", "cancels", backoff=BACKOFF_MS)
            await completed(worker, count)
        await queue.add("job", "does not")
        await completed(worker, 4)
    assert worker.stats.failed == (3 if how == "waits" else 0)
    assert (worker.stats.returned, set(left)) == (0, {0})


async def test_a_failure_costs_no_runner(queue: Queue, work: Work) -> None:
    async def handler(job: Job) -> None:
        if job.data % 2:
            raise (Odd, ValueError, asyncio.CancelledError)[job.data % 3]

    await queue.add_bulk([{"name": "job", "data": n, "attempts": 1} for n in range(60)])
    async with work(handler, concurrency=2) as worker:
        await completed(worker, 30)
        await buried(worker, 30)


async def test_a_handler_may_add_jobs_to_its_own_queue(queue: Queue, work: Work) -> None:
    async def handler(job: Job) -> None:
        if job.data > 0:
            await queue.add("job", job.data - 1)

    await queue.add("job", 5)
    async with work(handler, concurrency=1) as worker:
        await completed(worker, 6)


async def test_a_handler_may_close_its_worker(queue: Queue, work: Work) -> None:
    async def handler(_: Job) -> None:
        await worker.close()

    await queue.add("job", None)
    async with work(handler) as worker:
        await eventually_async(lambda: worker.is_closed and not worker.is_running)
    assert worker.stats.completed == 1


async def test_changes_that_a_handler_makes_to_its_job_are_not_stored(
    queue: Queue, work: Work
) -> None:
    seen: list[Any] = []

    async def handler(job: Job) -> None:
        seen.append(dict(job.data))
        job.data["spoiled"] = True
        job.id = "another"
        if job.attempt == 1:
            raise ValueError

    added = await queue.add("job", {"a": 1}, backoff=BACKOFF_MS)
    async with work(handler) as worker:
        await completed(worker, 1)
    assert seen == [{"a": 1}, {"a": 1}]
    assert added.data == {"a": 1}
