"""The doors to the data: the embedded server, kept alive, or one that somebody else runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from tambomq.errors import EmbeddedError, PortTaken
from tambomq.log import mask_url
from tambomq.serve.door import Door, Endpoint, Metric
from tambomq.serve.health import CHECK_WITHIN_S
from tambomq.settings import ServerSettings
from tambomq.store import probe
from tambomq.store.aio import AsyncStore
from tambomq.store.connect import endpoint
from tambomq.store.embedded import LOOK_EVERY_S, Embedded

T = TypeVar("T")

# A server that dies more often than this will not be saved by starting it again.
RESTARTS_A_MINUTE: Final = 5
_MINUTE_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
_TELL_EVERY_S: Final = 2.0

_log = logging.getLogger(__name__)


class StoreDoor(Door, Protocol):
    """The door that the others need: it knows where the data is."""

    @property
    def url(self) -> str:
        """The server, with its password; known once the door is open."""


def store_door(settings: ServerSettings) -> StoreDoor:
    """Return the door to the server that *settings* ask for."""
    if settings.redis_url is not None:
        return GivenStore(settings.redis_url)
    return EmbeddedStore(settings)


class EmbeddedStore:
    """The embedded server, started again when it dies."""

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
        self._pinger = _Pinger()

    @property
    def url(self) -> str:
        """The server; the same after it was started again."""
        return self._server.client_url

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The server and its data."""
        server = self._server
        return (
            Endpoint(
                "redis", server.url, f"embedded Valkey {server.version}", _try_with(server.url)
            ),
            Endpoint("data", str(server.dir.path), "kept over restarts", f"tail {server.dir.log}"),
        )

    async def start(self) -> None:
        """Start the server and wait until its data is loaded, telling how far it is."""
        steps = self._server.starting()
        told = time.monotonic()
        while (percent := await _in_thread(lambda: next(steps, None))) is not None:
            if time.monotonic() - told >= _TELL_EVERY_S:
                told = time.monotonic()
                doing = (
                    f"loading the data: {percent:.0f} %" if percent else "waiting for the server"
                )
                _log.info("%s", doing)
            await asyncio.sleep(LOOK_EVERY_S)

    async def watch(self) -> None:
        """Start the server again whenever it dies, until it does so too often."""
        while True:
            await asyncio.to_thread(self._server.wait)
            await self._revive(self._server.failure())

    async def check(self) -> None:
        """See whether it takes writes."""
        await self._pinger.write(self.url)

    async def metrics(self) -> Sequence[Metric]:
        """Return how often it was started again."""
        about = "Starts of the embedded server after it had died."
        return (Metric("restarts", about, self._restarts, "counter"),)

    async def stop(self) -> None:
        """Let the server write down everything and end."""
        await self._pinger.close()
        await asyncio.to_thread(self._server.stop)

    async def _revive(self, failure: EmbeddedError) -> None:
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
        """Return how long to wait, twice as long after each death of the last minute."""
        now = time.monotonic()
        self._deaths.append(now)
        recent = sum(now - death < _MINUTE_S for death in self._deaths)
        if recent > RESTARTS_A_MINUTE:
            raise _Hopeless(recent, failure)
        return float(_FIRST_PAUSE_S * 2 ** (recent - 1))


class GivenStore:
    """A server that somebody else runs; we only see to it that it is there at the start."""

    name = "redis"

    def __init__(self, url: str) -> None:
        self._url = url
        self._pinger = _Pinger()

    @property
    def url(self) -> str:
        """The server, as it was given."""
        return self._url

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The server, without its password."""
        url = mask_url(self._url)
        return (Endpoint("redis", url, "as given by --redis-url", _try_with(url)),)

    async def start(self) -> None:
        """See whether it answers. Raises `StoreUnavailable` or `StoreRefused`."""
        await self._pinger.ping(self._url)

    async def watch(self) -> None:
        """Do nothing: clients connect again by themselves."""
        await asyncio.Event().wait()

    async def check(self) -> None:
        """See whether it takes writes."""
        await self._pinger.write(self._url)

    async def metrics(self) -> Sequence[Metric]:
        """Return nothing: whoever runs it counts."""
        return ()

    async def stop(self) -> None:
        """Leave it alone."""
        await self._pinger.close()


class _Pinger:
    """Asks a server how it is, once and without patience."""

    def __init__(self) -> None:
        self._store: AsyncStore | None = None

    async def ping(self, url: str) -> None:
        """Raise `StoreError` unless it answers."""
        await self._at(url).run(probe.answers())

    async def write(self, url: str) -> None:
        """Raise `StoreError` unless it takes writes."""
        await self._at(url).follow(probe.takes_writes())

    def _at(self, url: str) -> AsyncStore:
        if self._store is None:
            # A connection that has gone silent makes one check fail, not those of half a minute.
            self._store = AsyncStore(endpoint(url).with_timeout(CHECK_WITHIN_S), patience_s=0)
        return self._store

    async def close(self) -> None:
        """Hang up."""
        if self._store is not None:
            await self._store.close()


class _Hopeless(EmbeddedError):
    """The server dies as soon as it is started."""

    def __init__(self, times: int, failure: EmbeddedError) -> None:
        why = f"{failure} by another program" if isinstance(failure, PortTaken) else str(failure)
        super().__init__(f"given up after the server failed {times} times in a minute: {why}")


def _try_with(url: str) -> str:
    return f"rsmqctl -r {url} queue list"


async def _in_thread(work: Callable[[], T]) -> T:
    """Do *work* in a thread. Cancelled, wait for it: what it started must be seen to be stopped."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
