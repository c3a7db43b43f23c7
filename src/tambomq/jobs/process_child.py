"""A process that runs jobs for a worker, one at a time; the other end of `JobProcess`.

It ends when the worker asks it to, after its stop hooks. Otherwise it lives as long as its
connection: a thread reads it and ends the process when it closes, also while a function runs.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import runpy
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from inspect import isawaitable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tambomq.chasqui.job import make_job

if TYPE_CHECKING:
    from tambomq.jobs.function import JobFunction
    from tambomq.jobs.jobs import Jobs
    from tambomq.jobs.providers import Resolver

READY: Final = "ready"
RESULT: Final = "result"
ERROR: Final = "error"
PROGRESS: Final = "progress"
LOG: Final = "log"

MAIN: Final = "__tambo_main__"
"""The name of a program that is run again here, so that its functions are found."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def main(descriptor: int) -> None:
    """Run jobs until the worker ends."""
    for number in _SIGNALS:
        # They are for the worker, which lets jobs finish. A function and not SIG_IGN, which
        # programs that a job starts would inherit.
        signal.signal(number, lambda *_: None)
    pipe = _Pipe(Connection(descriptor))
    child = _Child(pipe)
    with asyncio.Runner() as runner:
        pipe.send((READY, None))
        while (request := pipe.receive()) is not None:
            pipe.send(child.outcome(runner, *request))
        child.close(runner)


class _Pipe:
    """The connection to the worker."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection, self._received = connection, SimpleQueue[Any]()
        self._lock, self._pid = threading.Lock(), os.getpid()
        threading.Thread(target=self._read, daemon=True, name="worker-connection").start()

    def receive(self) -> Any:
        return self._received.get()

    def send(self, message: Any) -> None:
        if os.getpid() != self._pid:
            # A function has forked, and its child returns from it: it is no process of the pool.
            os._exit(0)
        self._connection.send(message)

    def report(self, kind: str, value: Any) -> None:
        """Send a report and wait until it is stored; raise what the worker says is wrong."""
        with self._lock:
            self.send((kind, value))
            if (error := self.receive()) is not None:
                raise error

    def _read(self) -> None:
        try:
            while True:
                self._received.put(self._connection.recv())
        except (EOFError, OSError):
            # The worker has ended or was killed: others may run the job now.
            os._exit(1)


class _Reporter:
    """What `Job.update_progress` and `Job.log` call."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    def update_progress(self, _: str, value: Any, __: str) -> Any:
        self._pipe.report(PROGRESS, value)
        return _Done()

    def log(self, _: str, line: str) -> Any:
        self._pipe.report(LOG, line)
        return _Done()

    def is_cancelled(self, _: str) -> bool:
        """Whether a job is cancelled: its process is killed then."""
        return False


class _Done:
    """An awaitable for coroutine functions: the report is stored already."""

    def __await__(self) -> Any:
        yield from ()


class _Child:
    """Finds functions and calls them, with the hooks and providers of their `Jobs`."""

    def __init__(self, pipe: _Pipe) -> None:
        self._reporter = _Reporter(pipe)
        self._files: dict[str, SimpleNamespace] = {}
        self._open: dict[str, tuple[Resolver, dict[str, Any]]] = {}
        self._jobs: list[Jobs] = []

    def outcome(
        self, runner: asyncio.Runner, module: str, qualname: str, fields: tuple[Any, ...]
    ) -> tuple[str, Any]:
        """Run a job; return what is sent back."""
        try:
            return RESULT, self._run(runner, module, qualname, fields)
        except BaseException as error:  # noqa: BLE001  (whatever a function raises, also sys.exit)
            return ERROR, _described(error)

    def _run(
        self, runner: asyncio.Runner, module: str, qualname: str, fields: tuple[Any, ...]
    ) -> Any:
        # Here and not above: this module is imported where nothing runs in processes.
        from tambomq.jobs.context import Context  # noqa: PLC0415
        from tambomq.jobs.dispatch import check_retry, plain_result  # noqa: PLC0415

        function: JobFunction[..., Any] = self._found(module, qualname)
        resolver, state = self._opened(runner, function)
        context = Context(make_job(*fields, self._reporter), function.jobs.queue_name, state)
        call = partial(function.arguments.call, function.function)
        try:
            arguments = function.arguments.arguments(fields[2])
            wanted = function.injected
            if function.is_async or any(kind is not Context for kind in wanted.values()):
                return plain_result(
                    function,
                    runner.run(_with_injected(call, arguments, resolver, wanted, context)),
                )
            arguments |= dict.fromkeys(wanted, context)
            return plain_result(function, call(arguments))
        except Exception as error:
            check_retry(function, error)
            raise

    def _found(self, module: str, qualname: str) -> Any:
        """Return the job named *qualname* in *module*, which may be a file."""
        if not module.endswith(".py"):
            found: Any = importlib.import_module(module)
        else:
            if module not in self._files:
                made = runpy.run_path(module, run_name=MAIN)
                self._files[module] = SimpleNamespace(**made)
            found = self._files[module]
        for name in qualname.split("."):
            found = getattr(found, name)
        return found

    def _opened(
        self, runner: asyncio.Runner, function: JobFunction[..., Any]
    ) -> tuple[Resolver, dict[str, Any]]:
        """Return providers and state of the function's `Jobs`; run its start hooks first."""
        from tambomq.jobs.hooks import call_hook  # noqa: PLC0415  (as above)
        from tambomq.jobs.providers import Resolver  # noqa: PLC0415  (as above)

        jobs = function.jobs
        if jobs.queue_name not in self._open:
            state: dict[str, Any] = {}
            for hook in jobs.start_hooks:
                runner.run(call_hook(hook, state))
            self._open[jobs.queue_name] = Resolver(jobs.providers), state
            self._jobs.append(jobs)
        return self._open[jobs.queue_name]

    def close(self, runner: asyncio.Runner) -> None:
        """Run the stop hooks, the last one first, and clean up what providers have made."""
        from tambomq.jobs.hooks import call_hook  # noqa: PLC0415  (as above)

        for jobs in self._jobs:
            resolver, state = self._open[jobs.queue_name]
            for hook in reversed(jobs.stop_hooks):
                try:
                    runner.run(call_hook(hook, state))
                except Exception:  # noqa: BLE001  (somebody else's hook)
                    traceback.print_exc()
            runner.run(resolver.close())


async def _with_injected(
    call: Callable[[dict[str, Any]], Any],
    arguments: dict[str, Any],
    resolver: Resolver,
    wanted: dict[str, Any],
    context: Any,
) -> Any:
    async with AsyncExitStack() as stack:
        arguments |= await resolver.resolve(wanted, context, stack)
        value = call(arguments)
        return await value if isawaitable(value) else value


def _described(error: BaseException) -> tuple[bytes | None, str, str]:
    """Return *error* pickled if that is possible, its headline and its traceback."""
    from tambomq.failures import headline, text_of, traceback_of, type_of  # noqa: PLC0415

    said = headline(type_of(error), text_of(error))
    pickled = _pickled(error)
    if pickled is None and (decision := _decision(error, said)) is not None:
        pickled = _pickled(decision)
    return pickled, said, traceback_of(error)


def sendable(error: BaseException) -> BaseException:
    """Return *error*, or one that says the same if it cannot be pickled."""
    from tambomq.failures import headline, text_of, type_of  # noqa: PLC0415  (as above)

    if _pickled(error) is not None:
        return error
    return RuntimeError(headline(type_of(error), text_of(error)))


def _pickled(error: BaseException) -> bytes | None:
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301  (just made)
    except Exception:  # noqa: BLE001  (somebody else's exception)
        return None
    return pickled


def _decision(error: BaseException, said: str) -> BaseException | None:
    """Return what *error* decides about its job, by a class of ours that can be pickled."""
    from tambomq.errors import CancelJob, Reject, RetryIn, UnrecoverableError  # noqa: PLC0415

    match error:
        case RetryIn():
            return RetryIn(error.seconds, error.reason)
        case CancelJob():
            return CancelJob(error.reason)
        case Reject():
            return UnrecoverableError(said)
    return None
