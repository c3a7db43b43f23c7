"""A process of ``tambo work``: loads the targets and runs their workers on one event loop.

Started by the supervisor with ``python -m``, so that nothing of it is inherited but the options.

SIGTERM: read nothing more, finish what runs, and end; a second one gives running jobs back. The end
of the supervisor does the same as SIGTERM. SIGUSR1: read nothing more, and stay.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tambomq import log
from tambomq.alarms.eviction import warn_of_eviction
from tambomq.errors import HandlersStuck, SettingsError, StoreUnavailable, TamboError
from tambomq.failures import from_handler, headline, text_of, type_of
from tambomq.runtime.event_loop import loop_factory
from tambomq.work.messages import (
    ConsumerMessage,
    ExitMessage,
    LoadedMessage,
    LoadFailedMessage,
    ProcessReport,
    QueueState,
)
from tambomq.work.options import SETTLE_S, WorkerProcessConfig
from tambomq.work.process.exits import FAILED, kill_group, leave
from tambomq.work.process.imports import source_files
from tambomq.work.process.lease_release import pack
from tambomq.work.process.memory import resident_bytes
from tambomq.work.process.parent_link import GONE, ParentLink, die_with
from tambomq.work.process.run_lines import RunPrinter
from tambomq.work.process.run_recorder import RunRecorder
from tambomq.work.process.targets import ManagedWorker, load_targets

if TYPE_CHECKING:
    from tambomq.chasqui.worker.in_flight import EntryLease

USAGE: Final = 2
_BANNER_WITHIN_S: Final = 2.0

# This module runs as ``__main__``.
_log: Final = logging.getLogger("tambomq.work.process.child")


def main() -> None:
    """Run the process that ``sys.argv[1]`` configures; never returns."""
    config = msgspec.json.decode(sys.argv[1], type=WorkerProcessConfig)
    # What reads the arguments must not find ours.
    sys.argv[1:] = []
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text file
    # Never closed here if threads are left: it would wait for them.
    runner = asyncio.Runner(loop_factory=loop_factory())
    code = WorkerProcess(config).run(runner)
    leave(code, runner)


class WorkerProcess:
    """The workers of one process, and what it tells its supervisor."""

    def __init__(self, config: WorkerProcessConfig) -> None:
        self._config, self._options = config, config.options
        self._link = ParentLink(config.link_fd, self._on_supervisor_gone)
        self._printer = RunPrinter(config.number, as_json=self._options.as_json)
        show = None if self._options.quiet else self._printer.show
        self._recorder = RunRecorder(show, self._options.max_jobs, self._on_enough)
        self._workers: list[ManagedWorker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping, self._paused, self._leaving = False, False, False
        self._asked_at: float | None = None
        """When the event loop was asked for a sign of life that it has not given yet."""
        self._files: set[str] = set()

    def run(self, runner: asyncio.Runner) -> int:
        """Load the targets, run their workers, and return the exit code."""
        die_with(self._config.supervisor)
        # Before the supervisor may send one: until the event loop runs, it is only noted.
        signal.signal(signal.SIGUSR1, self._note_pause)
        self._link.start()
        try:
            targets = load_targets(self._options.targets, self._options.queues)
            self._workers = [
                each.worker(self._options, self._recorder, self._on_consumer) for each in targets
            ]
        except TamboError as error:
            self._link.send(self._load_failed(error))
            return USAGE
        if not logging.getLogger().handlers:
            # The modules have configured no logging of their own.
            log.set_up(self._options.log_level, "json" if self._options.as_json else "text")
        pairs = zip(targets, self._workers, strict=True)
        described = [target.describe(worker) for target, worker in pairs]
        self._link.send(LoadedMessage(described, self._new_files()))
        # What the workers log comes below the banner.
        self._link.go.wait(_BANNER_WITHIN_S)
        threads = ThreadPoolExecutor(thread_name_prefix="asyncio")
        runner.get_loop().set_default_executor(threads)
        self._printer.start()
        code = runner.run(self._work())
        threads.shutdown(wait=False, cancel_futures=True)
        self._printer.close()
        self._link.close()
        return code

    def _load_failed(self, error: TamboError) -> LoadFailedMessage:
        cause = error.__cause__ or error
        trace = "".join(traceback.format_exception(cause))
        why = text_of(error) if isinstance(error, SettingsError) else headline("", text_of(error))
        return LoadFailedMessage(why, trace, self._new_files())

    # ── running ──────────────────────────────────────────────────────────────

    async def _work(self) -> int:
        self._loop = loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGUSR1, self._pause)
        loop.add_signal_handler(GONE, self._stop)
        if self._paused:
            self._pause()
        self._link.report_with(self._report)
        self._warning = asyncio.create_task(self._warn_of_eviction())
        self._tasks = [asyncio.create_task(each.run()) for each in self._workers]
        if self._stopping:
            self._stop()
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        failed = self._failures()
        self._log_failures()
        if not self._stopping:
            # A worker that ends by itself takes the process with it: a new one starts clean.
            why = failed or "a worker ended by itself"
            self._leave("failed", why)
            await asyncio.wait(self._tasks)
        else:
            await asyncio.wait(self._tasks)
        return FAILED if self._failures() else 0

    async def _warn_of_eviction(self) -> None:
        # One process says it for all.
        servers = {str(each.endpoint): each.endpoint for each in self._workers}
        for server in servers.values() if self._config.number == 1 else ():
            await warn_of_eviction(server)

    def _failures(self) -> str:
        """Return the errors of workers that ended with one."""
        done = [
            (worker, task)
            for worker, task in zip(self._workers, self._tasks, strict=True)
            if task.done() and not task.cancelled()
        ]
        return "; ".join(
            f"the worker of {worker.name!r} failed: {headline(type_of(error), text_of(error))}"
            for worker, task in done
            if (error := task.exception()) is not None
        )

    def _log_failures(self) -> None:
        """Log where workers failed: in a hook of the user's, say."""
        for worker, task in zip(self._workers, self._tasks, strict=True):
            error = task.exception() if task.done() and not task.cancelled() else None
            # These say all that there is to say: a worker that stops while it waits for its server
            # ends with its last error, which it has logged.
            known = (HandlersStuck, StoreUnavailable) if self._stopping else HandlersStuck
            if error is not None and not isinstance(error, known):
                shown = (type(error), error, from_handler(error))
                _log.error(
                    "the worker of %r failed",
                    worker.name,
                    exc_info=shown,
                    extra={"queue": worker.name},
                )

    def _on_consumer(self, lease: EntryLease, reads: bool) -> None:
        """Let the supervisor have what releases the jobs of a consumer, should we be killed."""
        packed = pack(lease) if reads else None
        if packed is not None or not reads:
            self._link.send(ConsumerMessage(lease.consumer, packed))

    # ── stopping ─────────────────────────────────────────────────────────────

    def _on_stop_signal(self) -> None:
        if self._stopping and not self._leaving:
            self._give_back()
        self._leaving = False
        self._stop()

    def _stop(self) -> None:
        """Let the workers finish what runs, and give back what is not finished in time."""
        if not self._stopping and self._loop is not None:
            self._loop.call_later(self._options.drain_s + SETTLE_S, self._give_back)
        self._stopping = True
        for worker, task in zip(self._workers, self._tasks, strict=False):
            worker.stop()
            if worker.last_fetch_at is None:
                # It has nothing to finish: perhaps its server is away, and it would go on trying.
                task.cancel()

    def _give_back(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _note_pause(self, *_: object) -> None:
        self._paused = True

    def _pause(self) -> None:
        self._paused = True
        for worker in self._workers:
            worker.pause_fetching()

    def _on_enough(self) -> None:
        self._leave("max_jobs", f"it has run {self._options.max_jobs} jobs")

    def _leave(self, cause: str, why: str) -> None:
        """Drain, and end; tell the supervisor first."""
        if not self._stopping:
            self._link.send(ExitMessage(cause, why))
            self._stop()
            # The supervisor's first signal is then the first one, not the second.
            self._leaving = True

    def _on_supervisor_gone(self) -> None:
        """Drain; end in any case when the time for that is over."""
        if self._loop is None:
            os._exit(FAILED)
        _log.error("the supervisor is gone: this process drains and ends")
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop)
        time.sleep(self._options.drain_s + 2 * SETTLE_S)
        _log.error("it has not drained in time, and ends")
        kill_group()

    # ── reports, made in the link's thread ───────────────────────────────────

    def _report(self) -> ProcessReport:
        now, rss = time.monotonic(), resident_bytes()
        self._check_memory(rss)
        blocked_s = 0.0 if self._asked_at is None else now - self._asked_at
        self._ask_loop(now)
        return ProcessReport(
            rss_bytes=rss,
            blocked_s=round(blocked_s, 3),
            queues=[_state(worker, now) for worker in self._workers],
            oldest=self._recorder.oldest(),
            counts=self._recorder.take(),
            is_paused=self._paused,
            is_stopping=self._stopping,
            files=self._new_files(),
        )

    def _check_memory(self, rss: int) -> None:
        limit = self._options.max_rss_bytes
        if limit is None or rss <= limit or self._stopping or self._loop is None:
            return
        why = f"its memory is {rss >> 20} MiB, more than {limit >> 20} MiB"
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._leave, "max_rss", why)

    def _ask_loop(self, now: float) -> None:
        if self._asked_at is None and self._loop is not None:
            self._asked_at = now
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._asked_at = None

    def _new_files(self) -> list[str]:
        if not self._options.reload:
            return []
        new = set(source_files()) - self._files
        self._files |= new
        return sorted(new)


def _state(worker: ManagedWorker, now: float) -> QueueState:
    at = worker.last_fetch_at
    ago = None if at is None else round(max(0.0, now - at), 3)
    return QueueState(worker.name, worker.in_flight, worker.concurrency, worker.is_consuming, ago)


if __name__ == "__main__":
    main()
