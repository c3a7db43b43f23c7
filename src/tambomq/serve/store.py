"""The Redis component: the embedded server, restarted when it dies, or an external one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from tambomq.alarms.eviction import warn_of_eviction
from tambomq.embedded.server import LOOK_EVERY_S, Embedded
from tambomq.errors import EmbeddedError, PortTaken
from tambomq.log import mask_url
from tambomq.serve.component import Component, Metric, ServedEndpoint
from tambomq.serve.health import CHECK_WITHIN_S
from tambomq.settings.load import ServerSettings
from tambomq.store import probe
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import endpoint

T = TypeVar("T")

# A server that dies more often than this will die again: give up.
RESTARTS_A_MINUTE: Final = 5
_MINUTE_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
_LOG_EVERY_S: Final = 2.0

_log = logging.getLogger(__name__)


class StoreComponent(Component, Protocol):
    """The Redis component, which the others depend on for their URL."""

    @property
    def url(self) -> str:
        """The URL of the server, with its password; known once the component is started."""


def store_component(settings: ServerSettings) -> StoreComponent:
    """Return the component for the server that *settings* choose."""
    if settings.redis_url is not None:
        return ExternalStore(settings.redis_url)
    return EmbeddedStore(settings)


class EmbeddedStore:
    """The embedded server, restarted when it dies."""

    name = "redis"

    def __init__(self, settings: ServerSettings) -> None:
        self._server = Embedded(
            settings.data_dir,
            port=settings.redis_port,
            maxmemory_bytes=settings.redis_maxmemory,
            auth=settings.redis_auth,
        )
        self._deaths: deque[float] = deque(maxlen=RESTARTS_A_MINUTE + 1)
        self._restarts = 0
        self._prober = _Prober()

    @property
    def url(self) -> str:
        """The URL of the server; a restart does not change it."""
        return self._server.client_url

    @property
    def endpoints(self) -> Sequence[ServedEndpoint]:
        """The server and its data."""
        server = self._server
        return (
            ServedEndpoint(
                "redis", server.url, f"embedded Valkey {server.version}", _try_with(server.url)
            ),
            ServedEndpoint(
                "data", str(server.dir.path), "kept over restarts", f"tail {server.dir.log}"
            ),
        )

    async def start(self) -> None:
        """Start the server and wait until its data is loaded; log the progress."""
        steps = self._server.starting()
        logged_at = time.monotonic()
        while (percent := await _in_thread(lambda: next(steps, None))) is not None:
            if time.monotonic() - logged_at >= _LOG_EVERY_S:
                logged_at = time.monotonic()
                doing = (
                    f"loading the data: {percent:.0f} %" if percent else "waiting for the server"
                )
                _log.info("%s", doing)
            await asyncio.sleep(LOOK_EVERY_S)

    async def watch(self) -> None:
        """Restart the server whenever it dies, until that happens too often."""
        while True:
            await asyncio.to_thread(self._server.wait)
            await self._restart(self._server.failure())

    async def check(self) -> None:
        """Check that it accepts writes."""
        await self._prober.write(self.url)

    async def metrics(self) -> Sequence[Metric]:
        """Return the number of restarts."""
        about = "Starts of the embedded server after it had died."
        return (Metric("restarts", about, self._restarts, "counter"),)

    async def stop(self) -> None:
        """Stop the server; it saves its data first."""
        await self._prober.close()
        await asyncio.to_thread(self._server.stop)

    async def _restart(self, failure: EmbeddedError) -> None:
        while True:
            pause_s = self._pause_s(failure)
            _log.error("%s", " ".join(str(failure).split("\n")))
            _log.warning("starting the server again in %.1f s", pause_s)
            await asyncio.sleep(pause_s)
            try:
                await self.start()
            except EmbeddedError as again:
                failure = again
            else:
                self._restarts += 1
                _log.warning("the server is back on %s", self._server.url)
                return

    def _pause_s(self, failure: EmbeddedError) -> float:
        """Return the delay before a restart; it doubles with each death of the last minute."""
        now = time.monotonic()
        self._deaths.append(now)
        recent = sum(now - died < _MINUTE_S for died in self._deaths)
        if recent > RESTARTS_A_MINUTE:
            raise _DiesTooOften(recent, failure)
        return float(_FIRST_PAUSE_S * 2 ** (recent - 1))


class ExternalStore:
    """A server that is run elsewhere; it must answer at the start."""

    name = "redis"

    def __init__(self, url: str) -> None:
        self._url = url
        self._prober = _Prober()

    @property
    def url(self) -> str:
        """The URL as given."""
        return self._url

    @property
    def endpoints(self) -> Sequence[ServedEndpoint]:
        """The URL of the server, without its password."""
        url = mask_url(self._url)
        return (ServedEndpoint("redis", url, "as given by --redis-url", _try_with(url)),)

    async def start(self) -> None:
        """Check that it answers, and warn if it may delete messages. Raises `StoreError`."""
        await self._prober.ping(self._url)
        await warn_of_eviction(endpoint(self._url).with_timeout(CHECK_WITHIN_S))

    async def watch(self) -> None:
        """Do nothing: clients reconnect by themselves."""
        await asyncio.Event().wait()

    async def check(self) -> None:
        """Check that it accepts writes."""
        await self._prober.write(self._url)

    async def metrics(self) -> Sequence[Metric]:
        """Return nothing: it has its own monitoring."""
        return ()

    async def stop(self) -> None:
        """Disconnect; the server keeps running."""
        await self._prober.close()


class _Prober:
    """Probes a server, without retries."""

    def __init__(self) -> None:
        self._store: AsyncStore | None = None

    async def ping(self, url: str) -> None:
        """Raise `StoreError` unless it answers."""
        await self._at(url).run(probe.answers())

    async def write(self, url: str) -> None:
        """Raise `StoreError` unless it accepts writes."""
        await self._at(url).follow(probe.takes_writes())

    def _at(self, url: str) -> AsyncStore:
        if self._store is None:
            # A short timeout: a dead connection must fail one check, not all of half a minute.
            self._store = AsyncStore(endpoint(url).with_timeout(CHECK_WITHIN_S), patience_s=0)
        return self._store

    async def close(self) -> None:
        """Disconnect."""
        if self._store is not None:
            await self._store.close()


class _DiesTooOften(EmbeddedError):
    """The server has died too often within a minute."""

    def __init__(self, times: int, failure: EmbeddedError) -> None:
        why = f"{failure} by another program" if isinstance(failure, PortTaken) else str(failure)
        super().__init__(f"given up after the server failed {times} times in a minute: {why}")


def _try_with(url: str) -> str:
    return f"rsmqctl -r {url} queue list"


async def _in_thread(work: Callable[[], T]) -> T:
    """Run *work* in a thread. If cancelled, wait for it, so that what it started can be stopped."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
