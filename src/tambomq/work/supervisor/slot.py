"""Keeps one place of a supervisor filled with a running process, and says why one is replaced."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tambomq.errors import SettingsError
from tambomq.work.messages import (
    ExitMessage,
    LoadedMessage,
    LoadFailedMessage,
    ProcessMessage,
    ProcessReport,
)
from tambomq.work.options import SETTLE_S, WorkOptions
from tambomq.work.supervisor.reaper import ProcessReaper
from tambomq.work.supervisor.restarts import RestartBackoff, describe_end
from tambomq.work.supervisor.worker_child import WorkerChild

SLOW_LOAD_S: Final = 10.0
BLOCKED_S: Final = 5.0
"""An event loop that is blocked for longer gets a warning."""
GIVE_BACK_S: Final = 2 * SETTLE_S
"""A process that has to give its jobs back is killed after this time."""

_log: Final = logging.getLogger(__name__)


class ProcessSlot:
    """The place of one process. `keep` fills it until `stop`."""

    def __init__(
        self,
        number: int,
        options: WorkOptions,
        reaper: ProcessReaper,
        on_message: Callable[[WorkerChild, ProcessMessage], None],
        on_ended: Callable[[WorkerChild], None],
    ) -> None:
        self.number, self._options, self._reaper = number, options, reaper
        self._on_message, self._on_ended = on_message, on_ended
        self._backoff = RestartBackoff()
        self.child: WorkerChild | None = None
        """The process; none between two."""
        self.restarts: Counter[str] = Counter()
        """By cause: ``died``, ``max_jobs``, ``max_rss``, ``failed``, ``reload``."""
        self.state = "has not been started"
        """What it does while there is no process."""
        self.was_killed = False
        """Whether its last process had to be killed."""
        self._has_loaded, self._stopping, self._reloading = False, False, False
        self._paused, self._blocked, self._signals_sent = False, False, 0
        self._wakeup = asyncio.Event()

    async def keep(self) -> None:
        """Start a process, and another one whenever it ends.

        Raises `SettingsError` if the targets cannot be loaded, and never could.
        """
        while not self._stopping:
            self._signals_sent, self._blocked, self._reloading = 0, False, False
            self._wakeup.clear()
            if (child := await self._started()) is None:
                continue
            self.child = child
            slow = asyncio.get_running_loop().call_later(SLOW_LOAD_S, self._warn_slow, child)
            try:
                code = await child.wait()
            finally:
                slow.cancel()
            self.child, self.was_killed = None, child.was_killed
            self._on_ended(child)
            if not self._stopping:
                await self._pause(child, code)
        self.state = "is stopped"

    async def _started(self) -> WorkerChild | None:
        """Start a process; pause and return nothing if the system has none to give."""
        try:
            return WorkerChild.start(self.number, self._options, self._reaper, self._receive)
        except OSError as error:
            # No memory, or too many processes: that may pass, and the other processes work.
            await self._pause_failed("failed", f"cannot be started: {error.strerror or error}", 0)
            return None

    # ── commands ─────────────────────────────────────────────────────────────

    def stop(self) -> None:
        """Drain; a second call gives jobs back, a third kills."""
        self._stopping = True
        self._wakeup.set()
        self._send_stop()

    def reload(self) -> None:
        """Replace the process, after it drained."""
        self._backoff.reset()
        self._paused = False
        self._wakeup.set()
        if not self._stopping and not self._reloading:
            self._reloading = True
            self._send_stop()

    def pause_fetching(self) -> None:
        """Let it, and its successors until `reload`, read nothing more."""
        self._paused = True
        if self.child is not None and self.child.loaded is not None:
            self.child.signal(signal.SIGUSR1)

    def kill(self) -> None:
        """Kill the process, and start no other."""
        self._stopping = True
        self._wakeup.set()
        if self.child is not None:
            self.child.kill()

    def _send_stop(self) -> None:
        if (child := self.child) is None:
            return
        self._signals_sent += 1
        if self._signals_sent > 2:  # noqa: PLR2004  (drain, give back, and now)
            self.kill()
            return
        child.signal(signal.SIGTERM)
        child.kill_after(self._drain_s if self._signals_sent == 1 else GIVE_BACK_S)

    @property
    def _drain_s(self) -> float:
        return self._options.drain_s + GIVE_BACK_S

    # ── what the process tells ───────────────────────────────────────────────

    def _receive(self, child: WorkerChild, message: ProcessMessage) -> None:
        match message:
            case LoadedMessage():
                self._has_loaded = True
                if self._paused:
                    child.signal(signal.SIGUSR1)
            case ExitMessage():
                child.kill_after(self._drain_s)
            case ProcessReport():
                self._warn_if_blocked(child, message)
        self._on_message(child, message)

    def _warn_slow(self, child: WorkerChild) -> None:
        if child.loaded is None and child.load_failed is None:
            _log.warning(
                "process %d still imports %s after %.0f s: does a module run something when it is "
                "imported, such as run_forever()?",
                *(self.number, ", ".join(self._options.targets), SLOW_LOAD_S),
                extra={"worker_process": self.number},
            )

    def _warn_if_blocked(self, child: WorkerChild, report: ProcessReport) -> None:
        """Warn once, in time, of a handler that should not be a coroutine function."""
        was_blocked, self._blocked = self._blocked, report.blocked_s > BLOCKED_S
        if self._blocked and not was_blocked:
            _log.warning(
                "process %d (pid %d): its event loop has been blocked for %.0f s%s; a handler that "
                "computes or waits without await should be a plain function",
                *(self.number, child.pid, report.blocked_s, _while_running(report)),
                extra={"worker_process": self.number},
            )

    # ── between two processes ────────────────────────────────────────────────

    async def _pause(self, child: WorkerChild, code: int) -> None:
        """Say why *child* has ended, and wait as long as that asks for."""
        if child.load_failed is not None:
            await self._pause_unloadable(child, child.load_failed)
        elif self._reloading:
            self.restarts["reload"] += 1
        elif (leaving := child.leaving) is not None and code == 0:
            self.restarts[leaving.cause] += 1
            why = (self.number, child.pid, leaving.why)
            _log.info("process %d (pid %d) is replaced: %s", *why, extra=self._fields)
        else:
            cause = "died" if child.leaving is None else child.leaving.cause
            await self._pause_failed(cause, _why(child, code), child.lived_s)

    async def _pause_failed(self, cause: str, why: str, lived_s: float) -> None:
        self.restarts[cause] += 1
        pause_s = self._backoff.pause_s(lived_s)
        when = f"in {pause_s:g} s" if pause_s else "now"
        _log.error("process %d %s; restarting %s", self.number, why, when, extra=self._fields)
        self.state = f"{why}, and is restarted {when}"
        await self._sleep(pause_s)

    async def _pause_unloadable(self, child: WorkerChild, failed: LoadFailedMessage) -> None:
        if not self._has_loaded:
            raise SettingsError(failed.why)
        _log.debug("%s", failed.traceback)
        if not self._options.reload:
            await self._pause_failed("failed", f"cannot start: {failed.why}", child.lived_s)
            return
        _log.error("%s; waiting for a change", failed.why, extra=self._fields)
        self.state = f"cannot start: {failed.why}"
        await self._wakeup.wait()

    async def _sleep(self, for_s: float) -> None:
        """Sleep, at most until `stop` or `reload`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                await self._wakeup.wait()

    @property
    def _fields(self) -> dict[str, object]:
        return {"worker_process": self.number}


def _why(child: WorkerChild, code: int) -> str:
    if child.leaving is not None:
        return f"(pid {child.pid}) {describe_end(code)}: {child.leaving.why}"
    return f"(pid {child.pid}) {describe_end(code)}{_before(child)}"


def _before(child: WorkerChild) -> str:
    """Return what may have ended it: what it last reported, which may be over since."""
    if child.report is None or not (running := _in_flight(child.report)):
        return ""
    return f"; {time.monotonic() - child.reported_at:.1f} s before, {running}"


def _while_running(report: ProcessReport) -> str:
    """Return the job that may be the reason."""
    running = _in_flight(report)
    return f", while {running}" if running else ""


def _in_flight(report: ProcessReport) -> str:
    if (oldest := report.oldest) is None:
        return ""
    more = sum(each.in_flight for each in report.queues) - 1
    return f"{oldest} and {more} more were in flight" if more > 0 else f"{oldest} was in flight"
