"""The processes in which functions with ``process=True`` run.

A process runs one job at a time. One whose job timed out or was cancelled is killed, one that has
died is replaced. When the worker ends, processes run their stop hooks; one that still runs a job is
killed. When this process dies, they end by themselves: their connections close.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import pickle
import signal
import socket
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tambomq.chasqui.job import Job
from tambomq.errors import InvalidFormat, JobProcessDied, JobTimedOut
from tambomq.failures import from_elsewhere
from tambomq.jobs import process_child
from tambomq.jobs.context import Context

if TYPE_CHECKING:
    from tambomq.jobs.function import JobFunction

log = logging.getLogger(__name__)

START_S: Final = 120.0
"""A process that has not imported its modules after this time is killed."""

STOP_S: Final = 10.0
"""A process whose stop hooks take longer is killed."""

_CHILD: Final = "from tambomq.jobs.process_child import main"

_living: weakref.WeakSet[JobProcess] = weakref.WeakSet()


def place_of(function: JobFunction[..., Any]) -> tuple[str, str]:
    """Return where another process finds *function*: its module, or a file, and its name there."""
    inner = function.function
    if inner.__module__ != "__main__":
        return inner.__module__, inner.__qualname__
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name, inner.__qualname__
    return str(Path(main.__file__ or "").absolute()), inner.__qualname__


def check_importable(function: JobFunction[..., Any]) -> None:
    """Raise `InvalidFormat` if another process could not find *function* by its name."""
    inner = function.function
    found: Any = sys.modules.get(inner.__module__)
    for name in inner.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not function:
        rule = f"with process=True it must be found as {inner.__module__}.{inner.__qualname__}"
        raise InvalidFormat("job", function.name, rule)


class JobProcesses:
    """Runs jobs in at most *size* processes, started on demand."""

    def __init__(self, size: int) -> None:
        """Belong to the running event loop."""
        self._size, self._loop = size, asyncio.get_running_loop()
        self._idle: list[JobProcess] = []
        self._all: set[JobProcess] = set()
        self._free = asyncio.Semaphore(size)
        self._threads: ThreadPoolExecutor | None = None

    async def call(self, function: JobFunction[..., Any], job: Job, context: Context) -> Any:
        """Return the result of *job* as it is stored; raise what its function raises.

        Raises `JobTimedOut`, `JobProcessDied`. The time-out counts from when a process is ready.
        """
        async with self._free:
            process = self._next()
            self._all.add(process)
            try:
                return await self._call(process, function, job, context)
            finally:
                if process.is_usable:
                    self._idle.append(process)
                else:
                    self._all.discard(process)

    def _next(self) -> JobProcess:
        """Return an idle process, or a new one if none is left that lives."""
        while self._idle:
            process = self._idle.pop()
            if process.is_usable:
                return process
            # Killed while it was idle, for memory perhaps: that is no failure of the next job.
            self._all.discard(process)
            process.kill()
            process.join()
        return JobProcess()

    async def _call(
        self, process: JobProcess, function: JobFunction[..., Any], job: Job, context: Context
    ) -> Any:
        if self._threads is None:
            # One thread for each process: it sends the job and waits for what comes back.
            self._threads = ThreadPoolExecutor(self._size, thread_name_prefix="job-process")
        timeout_s = function.config.timeout_s
        fields = (job.id, job.name, job.data, job.attempts_made, job.created_at_ms)
        request = (*place_of(function), fields)
        await self._within(process, START_S, process.start)
        return await self._within(process, timeout_s, partial(process.run, request, context))

    async def _within(self, process: JobProcess, timeout_s: float | None, work: Any) -> Any:
        """Wait for *work* in a thread; kill *process* if that takes too long or is cancelled."""
        ended = self._loop.run_in_executor(self._threads, work)
        scope = asyncio.timeout(timeout_s)
        try:
            async with scope:
                return await asyncio.shield(ended)
        except (TimeoutError, asyncio.CancelledError):
            if ended.done() and scope.expired():
                # It has ended in the same turn of the loop: what it returned counts.
                return ended.result()
            if not ended.done():
                process.kill()
                # Until it is dead: another worker may run the job as soon as this returns.
                await asyncio.wait((ended,))
                ended.exception()
            if scope.expired():
                raise JobTimedOut(timeout_s or 0) from None
            raise

    async def close(self) -> None:
        """Let idle processes run their stop hooks; kill the others."""
        for process in self._all:
            if process in self._idle:
                process.end()
            else:
                process.kill()
        if self._threads is not None:
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        for process in self._all:
            process.join(STOP_S)
        if self._threads is not None:
            self._threads.shutdown()


class JobProcess:
    """A process that runs one job at a time; its methods block, but for `kill`.

    Not one of multiprocessing's: those import the main module again, whatever it does, and Python
    waits for them when it ends.
    """

    def __init__(self) -> None:
        """Start nothing."""
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None
        self._killed = False

    @property
    def is_usable(self) -> bool:
        """Whether it can run another job."""
        return self._process is not None and not self._killed and self._process.poll() is None

    def start(self) -> None:
        """Start it, if it is new, and wait until it is ready."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            code = f"import sys; sys.path[:] = {sys.path!r}; {_CHILD}; main({theirs.fileno()})"
            command = [sys.executable, "-c", code]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        self._connection = Connection(ours.detach())
        _living.add(self)
        if self._killed:
            # While it was being started.
            self._process.kill()
        self._receive()

    def run(self, request: tuple[Any, ...], context: Context) -> Any:
        """Run a job; pass on what it reports until it has ended."""
        try:
            self._connection.send(request)
        except OSError:
            self._died()
        while True:
            kind, value = self._receive()
            if kind == process_child.RESULT:
                return value
            if kind == process_child.ERROR:
                raise _error(*value)
            self._report(context, kind, value)

    def kill(self) -> None:
        """Kill it; what waits for it then finds that it has died."""
        self._killed = True
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Ask it to run its stop hooks and to end; it runs no job."""
        try:
            self._connection.send(None)
        except OSError:
            self.kill()

    def join(self, within_s: float | None = None) -> None:
        """Wait until it has ended; kill it after *within_s* seconds."""
        if self._process is not None:
            try:
                self._process.wait(within_s)
            except subprocess.TimeoutExpired:
                log.warning("a process of jobs has not ended within %g s: killed", within_s)
                self.kill()
                self._process.wait()
            self._connection.close()

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self._died()

    def _report(self, context: Context, kind: str, value: Any) -> None:
        report = context.progress if kind == process_child.PROGRESS else context.log
        try:
            report(value)
            answer: Any = None
        except Exception as error:  # noqa: BLE001  (raised in the process that has reported)
            answer = process_child.sendable(error)
        self._connection.send(answer)

    def _died(self) -> NoReturn:
        # It may have closed its end only: then it is of no use either.
        self.kill()
        self.join()
        raise JobProcessDied(_ending(self._process.returncode if self._process else 0))


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    return f"was killed by {signal.Signals(-code).name}"


def _error(pickled: bytes | None, headline: str, trace: str) -> BaseException:
    """Return the error that a function raised in its process, or one that describes it."""
    error: BaseException = RuntimeError(headline)
    if pickled is not None:
        try:
            error = pickle.loads(pickled)  # noqa: S301  (from a process of ours)
        except Exception as reason:  # noqa: BLE001  (somebody else's exception)
            error.add_note(f"It cannot be unpickled: {reason}")
    error.add_note(f"In its process:\n{trace}")
    return from_elsewhere(error)


@atexit.register
def _kill_all() -> None:
    """Kill what a worker has left when Python ends; a moment later they would notice it."""
    for process in list(_living):
        process.kill()
