"""A long-running process: opens its doors in order, keeps them, closes them in reverse.

The composition root: what runs together is chosen in `doors`, and nowhere else. SIGINT and SIGTERM
close everything in order; a second signal ends the process at once, and the kernel does the rest.

The door for operators opens first and closes last: it tells how far the others are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tambomq.serve.chasqui import ChasquiDoor
from tambomq.serve.door import Door, Endpoint
from tambomq.serve.exposure import refuse_exposed
from tambomq.serve.gomq import gomq_door
from tambomq.serve.health import Health
from tambomq.serve.http import HttpDoor
from tambomq.serve.journal import JournalDoor, recordings
from tambomq.serve.kqueue import kqueue_door
from tambomq.serve.ready import ready_file
from tambomq.serve.rsmq import RsmqDoor
from tambomq.serve.store import store_door
from tambomq.serve.taken import refuse_taken
from tambomq.settings import Settings

_log = logging.getLogger(__name__)

_FILES: Final = 65_536

OnReady = Callable[[Sequence[Endpoint]], None]


def doors(settings: Settings, health: Health) -> list[Door]:
    """Return what *settings* ask to be served, in the order of opening.

    Raises `SettingsError`.
    """
    refuse_exposed(settings)
    redis = store_door(settings.server)
    journals = recordings(settings)
    asked: list[tuple[bool, Callable[[], Door]]] = [
        (settings.http.enabled, lambda: HttpDoor(settings.http, health)),
        (True, lambda: redis),
        (settings.rsmq.enabled, lambda: RsmqDoor(redis)),
        (settings.chasqui.enabled, lambda: ChasquiDoor(settings.chasqui, redis)),
        # Its numbers are all it has.
        (settings.http.enabled, lambda: JournalDoor(redis)),
        (settings.gomq.enabled, lambda: gomq_door(settings.gomq, redis, journals["gomq"])),
        (settings.kqueue.enabled, lambda: kqueue_door(settings.kqueue, redis, journals["kqueue"])),
    ]
    return [make() for enabled, make in asked if enabled]


def run(settings: Settings, *, on_ready: OnReady, ready_path: Path | None = None) -> None:
    """Serve until a signal comes. Raises what kept a door from opening or staying open."""
    _allow_many_files()
    health = Health()
    opened = doors(settings, health)
    refuse_taken(settings)
    process = Process(opened, on_ready=on_ready, ready_path=ready_path, health=health)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(process.run())


class Process:
    """Doors that open and close together.

    *on_ready* is told where everything is once all are open; *ready_path* then holds the same as
    JSON, until they close. *health* learns how far all is.
    """

    def __init__(
        self,
        doors: Sequence[Door],
        *,
        on_ready: OnReady,
        ready_path: Path | None = None,
        health: Health | None = None,
    ) -> None:
        self._doors, self._health = doors, health or Health()
        self._on_ready, self._ready_path = on_ready, ready_path
        self._opened: list[Door] = []

    async def run(self) -> None:
        """Open, keep until a signal comes, close."""
        stop = asyncio.Event()
        self._health.expect(self._doors)
        with _signals(stop, self._health):
            try:
                await _first(stop.wait(), self._serve())
            finally:
                self._health.stopping()
                await self._close()

    async def _serve(self) -> None:
        with ready_file(self._ready_path) as write:
            for door in self._doors:
                self._opened.append(door)
                await door.start()
                self._health.opened(door)
                places = ", ".join(each.address for each in door.endpoints)
                _log.debug("%s is open: %s", door.name, places)
            endpoints = [each for door in self._doors for each in door.endpoints]
            # Users look for the queues first.
            endpoints.sort(key=lambda each: each.name == HttpDoor.name)
            self._health.serving()
            self._on_ready(endpoints)
            write(endpoints)
            await _first(*(door.watch() for door in self._doors))

    async def _close(self) -> None:
        while self._opened:
            door = self._opened.pop()
            self._health.closing(door)
            try:
                await door.stop()
            except Exception:  # noqa: BLE001  (the others must close all the same)
                _log.exception("%s did not close", door.name)
            else:
                _log.debug("%s is closed", door.name)


async def _first(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Wait until one has finished, cancel the others, and raise what it raised."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


@contextmanager
def _signals(stop: asyncio.Event, health: Health) -> Iterator[None]:
    """Set *stop* at the first signal; leave at the second."""

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        _log.info("stopping on %s; once more to stop at once", signal.Signals(number).name)
        # Before any door closes: nobody is to be sent here from now on.
        health.stopping()
        stop.set()

    loop = asyncio.get_running_loop()
    caught = [signal.SIGINT, signal.SIGTERM]
    # nohup asks us to survive the terminal.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        caught.append(signal.SIGHUP)
    for each in caught:
        loop.add_signal_handler(each, on_signal, each)
    try:
        yield
    finally:
        for each in caught:
            loop.remove_signal_handler(each)


def _allow_many_files() -> None:
    """Let the process have as many connections as it may: often no more than 1,024 unasked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        # Some systems allow less than they say.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  (not to be had everywhere)
    except ImportError:
        return None
    return uvloop.new_event_loop
