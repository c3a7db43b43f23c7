"""A function that is a job: adds itself to its queue, with its own signature."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property, update_wrapper
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

import msgspec

from tambomq.chasqui.job import Job
from tambomq.chasqui.keys import check_name
from tambomq.errors import InvalidFormat, RemoteProtocolError
from tambomq.jobs.codec import converter, explain
from tambomq.jobs.context import Context
from tambomq.jobs.handle import JobHandle
from tambomq.jobs.options import AddOptions, FunctionOptions
from tambomq.jobs.signature import INJECTED, Arguments, check_signature, hints_of

if TYPE_CHECKING:
    from tambomq.chasqui.job import BackoffLike
    from tambomq.jobs.jobs import Jobs

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_ALONE: Final = {"debounce_s", "throttle_s"}
"""Options of jobs that cannot be part of a batch."""


class JobCall(Generic[R_co]):
    """A call of a job's function that is not added yet: checked, with its options."""

    __slots__ = ("function", "options", "payload")

    def __init__(
        self, function: JobFunction[..., R_co], payload: dict[str, Any], options: dict[str, Any]
    ) -> None:
        self.function, self.payload = function, payload
        self.options = options
        """Those of `Queue.add_unique`."""

    async def add(self) -> JobHandle[R_co]:
        """Add the job."""
        function = self.function
        return self._handle(await self._send(function.jobs.queue))

    def add_sync(self) -> JobHandle[R_co]:
        """Add the job; blocks."""
        return self._handle(self._send(self.function.jobs.blocking_queue))

    def batch_entry(self) -> dict[str, Any]:
        """Return an entry for `Queue.add_bulk`; raise `InvalidFormat` if its options forbid it."""
        for option in _ALONE & self.options.keys():
            raise InvalidFormat("job", self.function.name, f"added by itself: it has {option}")
        return {"name": self.function.name, "data": self.payload, **self.options}

    def _send(self, queue: Any) -> Any:
        add = queue.add_unique if "job_id" in self.options else queue.add
        return add(self.function.name, self.payload, **self.options)

    def _handle(self, job: Job) -> JobHandle[R_co]:
        return JobHandle(self.function, job.id, job.added)


class BoundJob(Generic[P, R_co]):
    """A job's function with options for the next adds; see `JobFunction.options`."""

    __slots__ = ("_function", "_options")

    def __init__(self, function: JobFunction[P, R_co], options: AddOptions) -> None:
        self._function = function
        self._options = function.defaults | options.for_queue()

    @property
    def function(self) -> JobFunction[P, R_co]:
        """The job's function."""
        return self._function

    @property
    def queue_options(self) -> dict[str, Any]:
        """The options of `Queue.add` that its jobs are added with."""
        return self._options

    async def add(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]:
        """Add a job with these arguments; see `JobFunction.add`."""
        return await self.call(*args, **kwargs).add()

    def add_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]:
        """Add a job with these arguments; blocks."""
        return self.call(*args, **kwargs).add_sync()

    def call(self, *args: P.args, **kwargs: P.kwargs) -> JobCall[R_co]:
        """Return a call with these arguments, for `Jobs.add_many`."""
        function = self._function
        return JobCall(function, function.arguments.payload(args, kwargs), self._options)


class JobFunction(Generic[P, R_co]):
    """A function that is a job; calling it calls the function itself."""

    def __init__(
        self, jobs: Jobs, name: str, function: Callable[..., Any], options: FunctionOptions
    ) -> None:
        # First: it also copies what the function has in its dict.
        update_wrapper(self, function)
        self.jobs, self.function, self.config = jobs, function, options
        self.name = check_name(name)
        """The name of its jobs."""
        self.signature = check_signature(name, function)
        self.is_async = iscoroutinefunction(function)
        self.defaults: dict[str, Any] = {}
        """The options that each of its jobs is added with."""
        if options.attempts is not None:
            self.defaults["attempts"] = options.attempts
        if options.backoff is not None:
            self.defaults["backoff"] = options.backoff

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself; nothing is added."""
        return self.function(*args, **kwargs)

    # ── adding ───────────────────────────────────────────────────────────────

    async def add(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]:
        """Add a job with these arguments.

        They are checked first: `InvalidArguments`, and nothing is sent. Raises what `Queue.add`
        raises.
        """
        payload = self.arguments.payload(args, kwargs)
        job = await self.jobs.queue.add(self.name, payload, **self.defaults)
        return JobHandle(self, job.id)

    def add_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]:
        """Add a job with these arguments; blocks. For Django, Flask and scripts."""
        payload = self.arguments.payload(args, kwargs)
        job = self.jobs.blocking_queue.add(self.name, payload, **self.defaults)
        return JobHandle(self, job.id)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> JobCall[R_co]:
        """Return a call with these arguments, checked, for `Jobs.add_many`."""
        return JobCall(self, self.arguments.payload(args, kwargs), self.defaults)

    def options(
        self,
        *,
        delay_s: float | None = None,
        job_id: str | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        debounce_s: float | None = None,
        throttle_s: float | None = None,
    ) -> BoundJob[P, R_co]:
        """Return this function with options for the next adds.

        *delay_s*: run it so much later. *job_id*: add nothing if it is in use. *debounce_s*: run it
        so long after the last add of this id; *throttle_s*: accept one add of this id in this time.
        """
        options = AddOptions(
            delay_s=delay_s,
            job_id=job_id,
            attempts=attempts,
            backoff=backoff,
            debounce_s=debounce_s,
            throttle_s=throttle_s,
        )
        return BoundJob(self, options)

    def handle(self, job_id: str) -> JobHandle[R_co]:
        """Return the handle of a job that was added before, maybe by another process."""
        return JobHandle(self, job_id)

    # ── types ────────────────────────────────────────────────────────────────

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The annotations, looked up at the first use: they may name what is defined later."""
        return hints_of(self.name, self.function)

    @cached_property
    def injected(self) -> dict[str, Any]:
        """The parameters that the worker fills in, with their types."""
        found: dict[str, Any] = {}
        for name, each in self.signature.parameters.items():
            kind = self.hints.get(name)
            if kind is Context or kind in self.jobs.providers:
                found[name] = kind
            elif each.default is INJECTED:
                rule = f"nothing provides {kind!r}: register a provider before its first use"
                raise InvalidFormat(f"job {self.name!r}: parameter", name, rule)
        return found

    @cached_property
    def arguments(self) -> Arguments:
        """Checks and converts its arguments."""
        return Arguments(self.name, self.signature, self.hints, self.injected)

    @cached_property
    def result_of(self) -> Callable[[Any], Any]:
        """Converts a stored result to the annotated type; raises `ValidationError`."""
        return converter(self.hints.get("return", Any), f"job {self.name!r}: result")

    def typed_result(self, stored: Any) -> R_co:
        """Return a stored result as the annotated type; raise `RemoteProtocolError`."""
        try:
            result: R_co = self.result_of(stored)
        except msgspec.ValidationError as error:
            fault = explain(error, stored, self.result_of)
            raise RemoteProtocolError(
                f"the result of job {self.name!r} does not fit: {fault}"
            ) from None
        return result

    def __repr__(self) -> str:
        return f"<job {self.name!r} of queue {self.jobs.queue_name!r}>"


class AsyncJobFunction(JobFunction[P, R_co]):
    """A `JobFunction` of a coroutine function, as type checkers see it."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
            """Call the function itself."""
            ...


class SyncJobFunction(JobFunction[P, R_co]):
    """A `JobFunction` of a plain function, as type checkers see it."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
            """Call the function itself."""
            ...
