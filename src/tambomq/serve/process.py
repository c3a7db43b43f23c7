"""The process of ``tambo serve``: starts its components in order, and stops them in reverse.

The composition root: `components` alone chooses what runs together. SIGINT and SIGTERM stop
everything in order; a second signal exits at once.

The HTTP component starts first and stops last, so that it can report the state of the others.
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

from tambomq.runtime import systemd
from tambomq.runtime.event_loop import loop_factory
from tambomq.serve.alarms.component import AlarmComponent
from tambomq.serve.chasqui import ChasquiComponent
from tambomq.serve.component import Component, ServedEndpoint
from tambomq.serve.console import ConsoleComponent, ConsoleSources, PipelineReader, make_console
from tambomq.serve.exposure import access_options, refuse_exposed
from tambomq.serve.gomq import gomq_component
from tambomq.serve.health import ProcessHealth
from tambomq.serve.http import HttpComponent
from tambomq.serve.journal import JournalComponent, journal_policies
from tambomq.serve.kqueue import KqueueView, kqueue_component
from tambomq.serve.metrics.queues import QueuesComponent
from tambomq.serve.ready_file import ready_file
from tambomq.serve.rsmq import RsmqComponent
from tambomq.serve.store import store_component
from tambomq.serve.taken_ports import refuse_taken
from tambomq.settings.load import Settings

_log = logging.getLogger(__name__)

_FILES: Final = 65_536

OnReady = Callable[[Sequence[ServedEndpoint]], None]


def components(
    settings: Settings, health: ProcessHealth, pipeline: PipelineReader | None = None
) -> list[Component]:
    """Return the components that *settings* enable, in the order of starting.

    The console shows what *pipeline* returns. Raises `SettingsError`.
    """
    refuse_exposed(settings)
    access = access_options(settings.access)
    redis, journals = store_component(settings.server), journal_policies(settings)
    of_gomq = journals["gomq"]
    console = make_console(settings.http, access) if settings.http.enabled else None
    kqueue = None
    if settings.kqueue.enabled:
        kqueue = kqueue_component(settings.kqueue, redis, journals["kqueue"], access)
    view = KqueueView(kqueue, settings.kqueue.max_buffer_bytes) if kqueue else None
    queues = QueuesComponent(redis, view)
    available: list[tuple[bool, Callable[[], Component]]] = [
        (settings.http.enabled, lambda: HttpComponent(settings.http, health, console=console)),
        (True, lambda: redis),
        (settings.rsmq.enabled, lambda: RsmqComponent(redis)),
        (settings.chasqui.enabled, lambda: ChasquiComponent(settings.chasqui, redis)),
        # They only report what HTTP serves.
        (settings.http.enabled, lambda: JournalComponent(redis)),
        (settings.http.enabled or settings.alarms.queue_length > 0, lambda: queues),
        # Before the servers that refuse messages while an alarm is raised.
        (settings.alarms.enabled, lambda: AlarmComponent(settings, redis, queues.lengths)),
        (settings.gomq.enabled, lambda: gomq_component(settings.gomq, redis, of_gomq, access)),
    ]
    parts = [make() for enabled, make in available if enabled]
    if kqueue is not None:
        parts.append(kqueue)
    if console is not None:
        has_tls = settings.kqueue.tls_cert is not None
        sources = ConsoleSources(
            kqueue, queues, sends_to_kqueue=not has_tls, pipeline=pipeline, access=access
        )
        # The last to start, so the first to stop: its streams must not outlast what they show.
        parts.append(ConsoleComponent(console, redis, sources))
    return parts


def run(
    settings: Settings,
    *,
    on_ready: OnReady,
    ready_path: Path | None = None,
    pipeline: PipelineReader | None = None,
) -> None:
    """Serve until a signal comes. Raises the error of a component that cannot be kept running."""
    health = ProcessHealth()
    parts = components(settings, health, pipeline)
    refuse_taken(settings)
    run_components(parts, health, on_ready=on_ready, ready_path=ready_path)


def run_components(
    parts: Sequence[Component],
    health: ProcessHealth,
    *,
    on_ready: OnReady,
    ready_path: Path | None = None,
) -> None:
    """Run *parts* until a signal comes."""
    _raise_file_limit()
    # Before anything starts: it takes its variables out of the environment that children inherit.
    notifier = systemd.SystemdNotifier()
    process = Process(
        parts, on_ready=on_ready, ready_path=ready_path, health=health, notifier=notifier
    )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(process.run())


class Process:
    """Starts, monitors and stops components together.

    Once all are started, *on_ready* gets their endpoints, and *ready_path* holds them as JSON until
    they stop. *health* is kept up to date, and systemd by *notifier*.
    """

    def __init__(
        self,
        components: Sequence[Component],
        *,
        on_ready: OnReady,
        ready_path: Path | None = None,
        health: ProcessHealth | None = None,
        notifier: systemd.SystemdNotifier | None = None,
    ) -> None:
        self._components, self._health = components, health or ProcessHealth()
        self._on_ready, self._ready_path = on_ready, ready_path
        self._systemd = notifier or systemd.SystemdNotifier({})
        self._started: list[Component] = []

    async def run(self) -> None:
        """Start everything, wait for a signal, stop everything."""
        stop = asyncio.Event()
        self._health.expect(self._components)
        with _signals(stop, self._health):
            try:
                await _first(stop.wait(), self._serve(), self._systemd.feed_watchdog())
            finally:
                self._health.stopping()
                self._systemd.notify(systemd.STOPPING)
                await self._stop()

    async def _serve(self) -> None:
        with ready_file(self._ready_path) as write:
            for component in self._components:
                self._started.append(component)
                await component.start()
                self._health.started(component)
                addresses = ", ".join(each.address for each in component.endpoints)
                _log.debug(
                    "%s is started: %s",
                    component.name,
                    addresses,
                    extra={"component": component.name},
                )
            endpoints = [each for component in self._components for each in component.endpoints]
            # HTTP was started first but is listed last: users look for the queues.
            endpoints.sort(key=lambda each: each.name == HttpComponent.name)
            self._health.serving()
            self._on_ready(endpoints)
            write(endpoints)
            self._systemd.notify(systemd.READY)
            await _first(*(component.watch() for component in self._components))

    async def _stop(self) -> None:
        while self._started:
            component = self._started.pop()
            self._health.stopped(component)
            try:
                await component.stop()
            except Exception:  # noqa: BLE001  (the others must be stopped all the same)
                _log.exception(
                    "%s did not stop", component.name, extra={"component": component.name}
                )
            else:
                _log.debug("%s is stopped", component.name, extra={"component": component.name})


async def _first(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Wait for the first to finish, cancel the others, and raise the error of the first."""
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
def _signals(stop: asyncio.Event, health: ProcessHealth) -> Iterator[None]:
    """Set *stop* at the first signal; exit at the second."""

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        _log.info("stopping on %s; once more to stop at once", signal.Signals(number).name)
        # /readyz must fail before any component stops, so that load balancers look elsewhere.
        health.stopping()
        stop.set()

    loop = asyncio.get_running_loop()
    caught = [signal.SIGINT, signal.SIGTERM]
    # nohup ignores SIGHUP; keep it so.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        caught.append(signal.SIGHUP)
    for each in caught:
        loop.add_signal_handler(each, on_signal, each)
    try:
        yield
    finally:
        for each in caught:
            loop.remove_signal_handler(each)


def _raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit: the soft one is often 1,024 connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < limit:
        # Some systems allow less than their hard limit.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
