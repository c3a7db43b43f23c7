"""Runs a job by its name: checks its arguments and calls its function, within middleware.

What a run needs is decided once per function. A coroutine function without context and middleware
takes the short way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from tambomq.chasqui.job import Job
from tambomq.errors import (
    CancelJob,
    InvalidFormat,
    JobTimedOut,
    Reject,
    RetryIn,
    UnrecoverableError,
)
from tambomq.failures import from_handler, headline, text_of, type_of
from tambomq.jobs.codec import to_plain
from tambomq.jobs.context import Context
from tambomq.jobs.function import JobFunction
from tambomq.jobs.providers import Resolver
from tambomq.runtime.forks import end_copy, forks
from tambomq.runtime.time_limit import TimeLimit

if TYPE_CHECKING:
    from tambomq.jobs.jobs import Jobs
    from tambomq.jobs.processes import JobProcesses
    from tambomq.jobs.threads import JobThreads

Run: TypeAlias = Callable[[Job], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Context], Any]


class JobDispatcher:
    """Runs the jobs of one worker: the handler that a `Worker` calls."""

    def __init__(
        self, jobs: Jobs, threads: JobThreads, processes: JobProcesses, state: dict[str, Any]
    ) -> None:
        self._jobs, self._threads, self._processes, self._state = jobs, threads, processes, state
        self._middlewares: Sequence[Middleware] = tuple(jobs.middlewares)
        self.resolver = Resolver(jobs.providers)
        self._limits = {
            function.name: TimeLimit(seconds, partial(JobTimedOut, seconds))
            for function in jobs.definitions.values()
            if (seconds := function.config.timeout_s) is not None
        }
        self.runs: dict[str, Run] = {
            name: self._compiled(function) for name, function in jobs.definitions.items()
        }

    async def __call__(self, job: Job) -> Any:
        """Run *job*; return its result as it is stored."""
        return await self.runs.get(job.name, self.unknown)(job)

    def still_runs(self, job_id: str) -> bool:
        """Whether a function of this job runs on in a thread, although its run has ended."""
        return self._threads.still_runs(job_id)

    def _compiled(self, function: JobFunction[..., Any]) -> Run:
        """Decide how the jobs of *function* run."""
        is_simple = (
            function.is_async
            and not function.config.process
            and not function.injected
            and not self._middlewares
            and function.arguments.is_plain_call
        )
        if is_simple:
            return _short_run(function, self._limits.get(function.name))
        return partial(self._run, function)

    async def unknown(self, job: Job) -> NoReturn:
        """Refuse a job whose name no function has."""
        known = ", ".join(sorted(self.runs)) or "none"
        async with AsyncExitStack() as stack:
            await self._enter(stack, Context(job, self._jobs.queue_name, self._state))
            raise UnrecoverableError(f"unknown job {job.name!r}; this worker knows: {known}")

    # ── the general way ──────────────────────────────────────────────────────

    async def _run(self, function: JobFunction[..., Any], job: Job) -> Any:
        before = forks.count
        context = Context(job, self._jobs.queue_name, self._state)
        try:
            if not self._middlewares:
                value = await self._checked(function, job, context)
            else:
                value = None
                async with AsyncExitStack() as stack:
                    await self._enter(stack, context)
                    value = await self._checked(function, job, context)
        except BaseException as error:
            if forks.count != before:
                end_copy(f"{self._jobs.queue_name} {job.name} {job.id}", error)
            raise
        if forks.count != before:
            end_copy(f"{self._jobs.queue_name} {job.name} {job.id}")
        return value

    async def _enter(self, stack: AsyncExitStack, context: Context) -> None:
        for middleware in self._middlewares:
            await stack.enter_async_context(middleware(context))

    async def _checked(self, function: JobFunction[..., Any], job: Job, context: Context) -> Any:
        arguments = function.arguments.arguments(job.data)
        if function.config.process:
            return await self._processes.call(function, job, context)
        try:
            if not function.injected:
                return plain_result(function, await self._call(function, arguments, context))
            async with AsyncExitStack() as stack:
                arguments |= await self.resolver.resolve(function.injected, context, stack)
                return plain_result(function, await self._call(function, arguments, context))
        except Exception as error:
            check_retry(function, error)
            raise

    async def _call(
        self, function: JobFunction[..., Any], arguments: dict[str, Any], context: Context
    ) -> Any:
        call = partial(function.arguments.call, function.function, arguments)
        limit = self._limits.get(function.name)
        if function.is_async:
            return await (call() if limit is None else limit.run(call()))
        try:
            value = await self._threads.call(context.job_id, call, function.config.timeout_s)
        except (asyncio.CancelledError, JobTimedOut):
            context.abandoned = True
            raise
        # A plain function may wrap a coroutine function, as decorators do.
        if not asyncio.iscoroutine(value):
            return value
        return await (value if limit is None else limit.run(value))


def middleware_of(function: Callable[..., Any]) -> Middleware:
    """Return *function* as middleware; raise `InvalidFormat` if it could not surround a run."""
    if not callable(function) or iscoroutinefunction(function) or isgeneratorfunction(function):
        rule = "an async function that yields once, around the run"
        raise InvalidFormat("middleware", function, rule)
    return asynccontextmanager(function) if isasyncgenfunction(function) else function


def _short_run(function: JobFunction[..., Any], limit: TimeLimit | None) -> Run:
    """Return the fast path of a coroutine function that needs nothing but its arguments."""
    arguments, call = function.arguments.arguments, function.function

    async def run(job: Job) -> Any:
        before = forks.count
        given = arguments(job.data)
        try:
            value = await (call(**given) if limit is None else limit.run(call(**given)))
        except BaseException as error:
            if forks.count != before:
                end_copy(f"{function.jobs.queue_name} {job.name} {job.id}", error)
            check_retry(function, error)
            raise
        if forks.count != before:
            end_copy(f"{function.jobs.queue_name} {job.name} {job.id}")
        return None if value is None else plain_result(function, value)

    return run


def plain_result(function: JobFunction[..., Any], value: Any) -> Any:
    """Return *value* as it is stored; raise `UnrecoverableError` if it cannot be."""
    if value is None:
        return None
    try:
        return to_plain(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # Another run would return the same.
        detail = f"job {function.name!r} has run, but its result cannot be stored: {error}"
        raise UnrecoverableError(detail) from None


def check_retry(function: JobFunction[..., Any], error: BaseException) -> None:
    """Raise `UnrecoverableError` if ``retry_on`` does not name *error*."""
    retry_on = function.config.retry_on
    if retry_on is None or isinstance(error, (*retry_on, RetryIn, CancelJob, Reject, JobTimedOut)):
        return
    if isinstance(error, Exception | SystemExit):
        detail = headline(type_of(error), text_of(error))
        # Cut our frames: the traceback of a chained error is shown in full.
        error.__traceback__ = from_handler(error)
        raise UnrecoverableError(f"{detail} (not in retry_on)") from error
