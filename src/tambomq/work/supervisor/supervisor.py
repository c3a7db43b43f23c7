"""The supervisor: keeps the worker processes running, and ends them in order.

It imports none of the user's code: that could break it, and only a new process sees changed files.

SIGTERM and SIGINT: all processes drain; a second one makes them give running jobs back, a third
kills them. SIGUSR1: they read nothing more, and stay. SIGHUP: they drain and are replaced.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tambomq.runtime import systemd
from tambomq.work.messages import (
    LoadedMessage,
    LoadFailedMessage,
    ProcessMessage,
    ProcessReport,
    TargetInfo,
)
from tambomq.work.options import WorkOptions
from tambomq.work.supervisor import health, metrics
from tambomq.work.supervisor.file_watch import FileWatch
from tambomq.work.supervisor.lease_reaper import LeaseReaper
from tambomq.work.supervisor.reaper import ProcessReaper
from tambomq.work.supervisor.slot import ProcessSlot
from tambomq.work.supervisor.status_server import StatusReply, StatusServer
from tambomq.work.supervisor.totals import TotalCounts
from tambomq.work.supervisor.worker_child import WorkerChild

LOOK_AT_FILES_EVERY_S: Final = 0.3

_STOPS: Final = (": finishing what runs", " again: giving jobs back", " again: killing")
"""What a signal to stop does, and a second and third one."""

_log: Final = logging.getLogger(__name__)

OnLoaded = Callable[[Sequence[TargetInfo], str | None], None]
"""Called once, with the targets and the URL of the status pages."""


class Supervisor:
    """The processes of one ``tambo work``."""

    def __init__(self, options: WorkOptions, on_loaded: OnLoaded) -> None:
        self._options, self._on_loaded = options, on_loaded
        self._reaper, self._totals, self._files = ProcessReaper(), TotalCounts(), FileWatch()
        self._systemd, self._lease_reaper = systemd.SystemdNotifier(), LeaseReaper(self._reaper)
        self._slots = [
            ProcessSlot(number, options, self._reaper, self._on_message, self._lease_reaper.release)
            for number in range(1, options.processes + 1)
        ]
        pages = {
            "/healthz": self._healthz,
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
        }
        has_http = options.http_port > 0
        self._http = StatusServer(options.http_host, options.http_port, pages) if has_http else None
        self._announced, self._ready, self._paused = False, False, False
        self._stops = 0
        """Signals to stop."""

    async def run(self) -> int:
        """Run until a signal; return the exit code.

        Raises `SettingsError` if the targets cannot be loaded, or the HTTP port not be opened.
        """
        self._reaper.start()
        self._install_signals()
        keeping = [asyncio.create_task(slot.keep()) for slot in self._slots]
        tasks = [asyncio.create_task(each) for each in self._background_tasks()]
        try:
            if self._http is not None:
                await self._http.start()
            await asyncio.gather(*keeping)
        finally:
            await self._end(keeping, tasks)
        return 1 if any(slot.was_killed for slot in self._slots) else 0

    async def _end(
        self, keeping: Sequence[asyncio.Task[None]], tasks: Sequence[asyncio.Task[None]]
    ) -> None:
        """End what is left: all of it after an error, nothing after a drain."""
        for slot in self._slots:
            slot.kill()
        await asyncio.gather(*keeping, return_exceptions=True)
        await self._lease_reaper.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http is not None:
            self._http.close()
        self._reaper.stop()

    # ── signals ──────────────────────────────────────────────────────────────

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, number)
        loop.add_signal_handler(signal.SIGUSR1, self._on_pause)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)

    def _on_stop(self, number: signal.Signals) -> None:
        step = _STOPS[min(self._stops, len(_STOPS) - 1)]
        _log.info("%s%s", number.name, step)
        self._stops += 1
        self._systemd.notify(systemd.STOPPING)
        for slot in self._slots:
            slot.stop()

    def _on_pause(self) -> None:
        _log.info("SIGUSR1: reading nothing more")
        self._paused = True
        for slot in self._slots:
            slot.pause_fetching()

    def _on_hangup(self) -> None:
        self._reload("SIGHUP")

    def _reload(self, why: str) -> None:
        if not self._stops:
            _log.info("%s: replacing all processes", why)
            self._paused = False
            for slot in self._slots:
                slot.reload()

    # ── what processes tell ──────────────────────────────────────────────────

    def _on_message(self, child: WorkerChild, message: ProcessMessage) -> None:
        match message:
            case LoadedMessage(targets=targets, files=files):
                self._files.add(files)
                self._announce(targets)
                child.send_go()
            case LoadFailedMessage(files=files):
                self._files.add(files)
            case ProcessReport(counts=counts, files=files):
                self._totals.add(counts)
                self._files.add(files)
                self._notify_ready()

    def _announce(self, targets: Sequence[TargetInfo]) -> None:
        if not self._announced:
            self._announced = True
            self._on_loaded(targets, None if self._http is None else self._http.url)

    def _notify_ready(self) -> None:
        if not self._ready and self._is_ready:
            self._ready = True
            self._systemd.notify(systemd.READY, f"STATUS={self._options.processes} processes work")

    @property
    def _is_ready(self) -> bool:
        children = [slot.child for slot in self._slots]
        return not self._stops and all(c is not None and c.is_consuming for c in children)

    # ── beside ───────────────────────────────────────────────────────────────

    def _background_tasks(self) -> Iterator[Coroutine[None, None, None]]:
        if self._options.reload:
            yield self._watch_files()
        if self._systemd.watchdog_s:
            yield self._systemd.feed_watchdog()

    async def _watch_files(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AT_FILES_EVERY_S)
            if changed := self._files.changed():
                # An editor may still write: wait until nothing changes any more.
                while more := await self._changed_later():
                    changed += more
                self._reload(f"{_shown(changed)} changed")

    async def _changed_later(self) -> list[str]:
        await asyncio.sleep(LOOK_AT_FILES_EVERY_S)
        return self._files.changed()

    # ── status pages ─────────────────────────────────────────────────────────

    def _healthz(self) -> StatusReply:
        found = health.look(self._slots)
        status = 200 if all(each.ok for each in found.values()) else 503
        return StatusReply(status, msgspec.json.encode(found).decode() + "\n", "application/json")

    def _livez(self) -> StatusReply:
        if not (found := health.hanging(self._slots)):
            return StatusReply(200, "alive\n")
        return StatusReply(503, "".join(f"process {n}: {why}\n" for n, why in found.items()))

    def _readyz(self) -> StatusReply:
        if self._is_ready and not self._paused:
            return StatusReply(200, "ready\n")
        return StatusReply(503, "not ready\n")

    def _metrics(self) -> StatusReply:
        text = metrics.page(self._totals, self._slots, health.look(self._slots))
        return StatusReply(200, text, metrics.CONTENT_TYPE)


def run(options: WorkOptions, on_loaded: OnLoaded) -> int:
    """Run a supervisor until a signal ends it; return the exit code. Raises `SettingsError`."""
    return asyncio.run(Supervisor(options, on_loaded).run())


def _shown(files: Sequence[str]) -> str:
    """Return the path of one of *files*, as the user knows it, and the number of the others."""
    path, more = Path(files[0]), len(set(files)) - 1
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown} and {more} more files" if more else str(shown)
