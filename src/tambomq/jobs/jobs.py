"""Typed jobs: functions become the jobs of a queue by a decorator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Self, TypeAlias, TypeVar, overload

from tambomq.chasqui.blocking_queue import BlockingQueue
from tambomq.chasqui.job import BackoffLike
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.queue import Queue
from tambomq.chasqui.repeat import MissedFiresLike, RepeatPattern
from tambomq.errors import InvalidFormat
from tambomq.jobs.connections import Connections
from tambomq.jobs.context import Context
from tambomq.jobs.decorator import JobDecorator
from tambomq.jobs.dispatch import Middleware, middleware_of
from tambomq.jobs.function import (
    AsyncJobFunction,
    JobCall,
    JobFunction,
    P,
    R,
    SyncJobFunction,
)
from tambomq.jobs.handle import JobHandle
from tambomq.jobs.hooks import Hook
from tambomq.jobs.options import FunctionOptions, check_seconds
from tambomq.jobs.providers import RUN, Provider, check_needs, provider
from tambomq.jobs.recurring import RecurringJob
from tambomq.jobs.testing.kit import JobsTestKit
from tambomq.jobs.worker import JobsWorker
from tambomq.store.endpoint import Endpoint

if TYPE_CHECKING:
    from tambomq.runtime.observer import RunObserver

F = TypeVar("F", bound=Callable[..., Any])
MiddlewareLike: TypeAlias = (
    Callable[[Context], AsyncIterator[None]]
    | Callable[[Context], AbstractAsyncContextManager[Any, Any]]
)
M = TypeVar("M", bound=MiddlewareLike)


class Jobs(JobsTestKit):
    """The jobs of one queue: functions that are added by name and run by workers.

    Without *redis_url* the server is that of the settings (``tambo.toml``, ``TAMBO_REDIS_URL``),
    read at the first use. Further *queue_options* are those of `Queue`.
    """

    def __init__(
        self, name: str, *, redis_url: str | Endpoint | None = None, **queue_options: Any
    ) -> None:
        """Connect to nothing; the first call does."""
        self.queue_name = Keys(name).queue
        """The name of the queue."""
        self.connections = Connections(name, redis_url, queue_options)
        """Makes the clients of the queue."""
        self._definitions: dict[str, JobFunction[..., Any]] = {}
        self.middlewares: list[Middleware] = []
        """Asynchronous context managers around each run, the outermost first."""
        self.start_hooks: list[Hook] = []
        self.stop_hooks: list[Hook] = []
        self.providers: dict[Any, Provider] = {}
        """By the type that they provide."""
        self.recurring: dict[str, RecurringJob] = {}
        """The jobs that fire by themselves, by name."""

    @property
    def definitions(self) -> Mapping[str, JobFunction[..., Any]]:
        """The functions, by the name of their jobs."""
        return MappingProxyType(self._definitions)

    @property
    def redis_url(self) -> str | Endpoint:
        """The server. Tests may set another one before the first use."""
        return self.connections.redis_url

    @redis_url.setter
    def redis_url(self, url: str | Endpoint) -> None:
        self.connections.redis_url = url

    @property
    def queue(self) -> Queue:
        """The queue, for the running event loop."""
        return self.connections.queue

    @property
    def blocking_queue(self) -> BlockingQueue:
        """The queue, for the threads of this process."""
        return self.connections.blocking_queue

    # ── functions ────────────────────────────────────────────────────────────

    # A coroutine function is a function too: the first that fits is meant.
    @overload
    def job(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, R]: ...
    @overload
    def job(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncJobFunction[P, R]: ...
    @overload
    def job(self, function: Callable[Concatenate[Context, P], R], /) -> JobFunction[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> SyncJobFunction[P, R]: ...
    @overload
    def job(
        self,
        *,
        name: str | None = None,
        attempts: int | None = None,
        timeout_s: float | None = None,
        backoff: BackoffLike | None = None,
        retry_on: tuple[type[BaseException], ...] | None = None,
        process: bool = False,
    ) -> JobDecorator: ...
    def job(self, *function: Any, **how: Any) -> Any:
        """Make a function a job; its name is that of the function unless *name* is given.

        *attempts*: runs at most. *timeout_s*: a run that takes longer has failed; a coroutine is
        cancelled, a process killed, a thread abandoned. *backoff*: before each retry. *retry_on*:
        errors after which it runs again; after others it goes to the dead-letter queue.
        *process*: run it in a process of its own, for functions that need the processor.
        """
        name = how.pop("name", None)
        decorator = JobDecorator(self._define, name, FunctionOptions(**how))
        return decorator(*function) if function else decorator

    def cron(
        self,
        expression: str,
        *,
        tz: str | None = None,
        unless_queued: bool = True,
        missed_fires: MissedFiresLike | None = None,
        name: str | None = None,
        **how: Any,
    ) -> JobDecorator:
        """Make a function a job that fires when *expression* matches the clock of *tz*.

        A worker registers it when it starts. *unless_queued*: skip a fire while the job of the last
        one waits or runs. *how*: the options of `job`.
        """
        pattern = RepeatPattern.cron(expression, tz=tz)
        return self._recurring(pattern, unless_queued, missed_fires, name, how)

    def every(
        self,
        seconds: float,
        *,
        unless_queued: bool = True,
        missed_fires: MissedFiresLike | None = None,
        name: str | None = None,
        **how: Any,
    ) -> JobDecorator:
        """Make a function a job that fires every so many *seconds*; see `cron`."""
        pattern = RepeatPattern.every(round(check_seconds("seconds", seconds) * 1000))
        return self._recurring(pattern, unless_queued, missed_fires, name, how)

    def _recurring(
        self,
        pattern: RepeatPattern,
        unless_queued: bool,
        missed: MissedFiresLike | None,
        name: str | None,
        how: dict[str, Any],
    ) -> JobDecorator:
        def define(name: str, function: Callable[..., Any], how: FunctionOptions) -> Any:
            defined = self._define(name, function, how)
            self.recurring[defined.name] = RecurringJob.of(defined, pattern, unless_queued, missed)
            return defined

        return JobDecorator(define, name, FunctionOptions(**how))

    def _define(
        self, name: str, function: Callable[..., Any], how: FunctionOptions
    ) -> JobFunction[..., Any]:
        if name in self._definitions:
            other = self._definitions[name].function
            rule = f"{other.__module__}.{other.__qualname__} has this name; give another by name="
            raise InvalidFormat("job", name, rule)
        defined: JobFunction[..., Any] = JobFunction(self, name, function, how)
        self._definitions[name] = defined
        return defined

    # ── around runs ──────────────────────────────────────────────────────────

    def middleware(self, function: M) -> M:
        """Run *function* around each run: it takes the `Context` and yields once.

        An async generator function, or one that returns an asynchronous context manager. Raises
        `InvalidFormat`.
        """
        self.middlewares.append(middleware_of(function))
        return function

    def on_start(self, function: F) -> F:
        """Call *function* when a worker starts, with the dict of `Context.state` if it takes it."""
        self.start_hooks.append(function)
        return function

    def on_stop(self, function: F) -> F:
        """Call *function* when a worker ends; see `on_start`. The last one is called first."""
        self.stop_hooks.append(function)
        return function

    @overload
    def provide(self, function: F, /) -> F: ...
    @overload
    def provide(self, *, scope: str = RUN) -> Callable[[F], F]: ...
    def provide(self, *function: Any, scope: str = RUN) -> Any:
        """Fill parameters of the type that *function* returns or yields with what it returns.

        It is called for each ``"run"``, or once for each ``"worker"``.
        """

        def register(function: F) -> F:
            made = provider(function, scope)
            check_needs(self.providers, made)
            self.providers[made.kind] = made
            return function

        return register(*function) if function else register

    # ── adding and working ───────────────────────────────────────────────────

    async def add_many(self, calls: Iterable[JobCall[R]]) -> list[JobHandle[R]]:
        """Add many jobs in one round trip; make the calls by `JobFunction.call`.

        Raises `BatchIncomplete` if the server accepted only some.
        """
        made = list(calls)
        jobs = await self.queue.add_bulk(self._batch(made))
        return [JobHandle(call.function, job.id) for call, job in zip(made, jobs, strict=True)]

    def add_many_sync(self, calls: Iterable[JobCall[R]]) -> list[JobHandle[R]]:
        """`add_many`, which blocks."""
        made = list(calls)
        jobs = self.blocking_queue.add_bulk(self._batch(made))
        return [JobHandle(call.function, job.id) for call, job in zip(made, jobs, strict=True)]

    def _batch(self, calls: Iterable[JobCall[Any]]) -> list[dict[str, Any]]:
        for call in calls:
            if call.function.jobs is not self:
                raise InvalidFormat("job", call.function.name, f"of queue {self.queue_name!r}")
        return [call.batch_entry() for call in calls]

    def worker(
        self,
        *,
        concurrency: int = 100,
        grace_s: float = 30.0,
        observer: RunObserver | None = None,
        threads: int | None = None,
        processes: int | None = None,
        **worker_options: Any,
    ) -> JobsWorker:
        """Return a worker that runs these jobs, *concurrency* at a time.

        *threads*: plain functions at a time, as many as *concurrency* by default. *processes*:
        those with ``process=True`` at a time, one for each processor by default. Results are kept,
        unless ``store_results=False``. *worker_options* are those of `Worker`; what it shares with
        the `Queue`, TLS for example, is as given to this `Jobs`.
        """
        return JobsWorker(
            self,
            concurrency=concurrency,
            grace_s=grace_s,
            observer=observer,
            threads=threads,
            processes=processes,
            **worker_options,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect from the running event loop; a later call connects again."""
        await self.connections.close()

    def close_sync(self) -> None:
        """Disconnect the threads of this process; a later call connects again."""
        self.connections.close_blocking()

    def __repr__(self) -> str:
        return f"Jobs({self.queue_name!r})"
