"""One function run alone: no server, no worker, and a context that records what it reports."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from copy import copy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Generic, Self, TypeVar

import msgspec

from tambomq.chasqui.job import Job, check_whole, make_job
from tambomq.chasqui.wire.msgpack import decode_payload, encode_payload
from tambomq.clock import now_ms
from tambomq.ids import ulid
from tambomq.jobs.dispatch import JobDispatcher
from tambomq.jobs.function import JobFunction
from tambomq.jobs.hooks import call_hook
from tambomq.jobs.processes import JobProcesses
from tambomq.jobs.providers import RUN, Provider
from tambomq.jobs.threads import JobThreads

R_co = TypeVar("R_co", covariant=True)

_MAX_ATTEMPT = 2**31


@dataclass(frozen=True, slots=True)
class RecordedRun(Generic[R_co]):
    """What a function returned, and what it reported on the way."""

    result: R_co
    """As `JobHandle.result` would return it: stored and read again."""
    progress: list[Any] = field(default_factory=list)
    """Each reported progress, in order."""
    logs: list[str] = field(default_factory=list)
    """Each line of the log, in order."""


class TrialRun(Generic[R_co]):
    """A run of one function, made by `Jobs.test_job`: await it, or call `run_sync`."""

    def __init__(self, function: JobFunction[..., R_co], payload: dict[str, Any]) -> None:
        """Run nothing yet."""
        self._function, self._jobs = function, function.jobs
        self._payload, self._attempt = payload, 1
        self._middleware = self._hooks = False
        self._state: dict[str, Any] = {}
        self._provided: dict[Any, Provider] = {}
        self.progress: list[Any] = []
        """Each reported progress so far; also if the function raises."""
        self.logs: list[str] = []
        """Each line of the log so far; also if the function raises."""

    def with_middleware(self) -> Self:
        """Run it within the middleware of its `Jobs`."""
        self._middleware = True
        return self

    def with_hooks(self) -> Self:
        """Call the start hooks before it and the stop hooks after it."""
        self._hooks = True
        return self

    def with_state(self, **state: Any) -> Self:
        """Put values into `Context.state`, as start hooks do."""
        self._state |= state
        return self

    def with_provided(self, kind: Any, value: Any) -> Self:
        """Fill parameters of type *kind* with *value* instead of what its provider makes."""
        self._provided[kind] = Provider(kind, lambda: value, RUN, {})
        return self

    def on_attempt(self, attempt: int) -> Self:
        """Run it as if it had failed before: *attempt* 2 is the first retry."""
        self._attempt = check_whole("attempt", attempt, _MAX_ATTEMPT, minimum=1)
        return self

    def __await__(self) -> Generator[Any, Any, RecordedRun[R_co]]:
        return self._run().__await__()

    def run_sync(self) -> RecordedRun[R_co]:
        """Run it in an event loop of its own; for tests that are no coroutines."""
        return asyncio.run(self._run())

    async def _run(self) -> RecordedRun[R_co]:
        jobs, function = self._jobs, _in_this_process(self._function)
        view: Any = SimpleNamespace(
            queue_name=jobs.queue_name,
            definitions={function.name: function},
            middlewares=jobs.middlewares if self._middleware else (),
            providers=jobs.providers | self._provided,
        )
        threads, processes = JobThreads(jobs.queue_name, 1), JobProcesses(1)
        dispatch = JobDispatcher(view, threads, processes, self._state)
        try:
            if self._hooks:
                for hook in jobs.start_hooks:
                    await call_hook(hook, self._state)
            stored = await dispatch(self._job())
        finally:
            if self._hooks:
                for hook in reversed(jobs.stop_hooks):
                    await call_hook(hook, self._state)
            await dispatch.resolver.close()
            threads.close()
        plain = None if stored is None else decode_payload(encode_payload(stored))
        return RecordedRun(function.typed_result(plain), self.progress, self.logs)

    def _job(self) -> Job:
        now = now_ms()
        data = decode_payload(encode_payload(self._payload))
        reporter = _RecordingReporter(self.progress, self.logs)
        return make_job(ulid(now), self._function.name, data, self._attempt - 1, now, reporter)


class _RecordingReporter:
    """Takes the reports of a run in the place of a worker."""

    def __init__(self, progress: list[Any], logs: list[str]) -> None:
        self._progress, self._logs = progress, logs

    def update_progress(self, _id: str, value: Any, _name: str) -> _Awaitable:
        # Encoded as a worker would: a value that cannot be stored is refused here too.
        self._progress.append(decode_payload(encode_payload(value)))
        return _Awaitable()

    def log(self, _id: str, line: str) -> _Awaitable:
        self._logs.append(line)
        return _Awaitable()

    def is_cancelled(self, _id: str) -> bool:
        return False


class _Awaitable:
    """Can be awaited, and need not be: plain functions do not."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


def _in_this_process(function: JobFunction[..., Any]) -> JobFunction[..., Any]:
    """Return *function* without ``process=True``: a test can then patch what it uses."""
    made = copy(function)
    made.config = msgspec.structs.replace(function.config, process=False)
    return made
