"""The door of a protocol that has a server of its own in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol

from tambomq.errors import DoorFailed, TamboError
from tambomq.serve.door import Endpoint, Metric
from tambomq.serve.listening import cannot_open, spelled

GRACE_S: Final = 5.0
"""So long may what is under way take when the door closes."""

Counted = Mapping[str, tuple[Literal["counter", "gauge"], str]]
"""What a server counts: a field of its stats, its kind, and what it says."""


class Server(Protocol):
    """What such a server can do."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, known once it is started."""

    @property
    def stats(self) -> object:
        """What it has counted, by attribute."""

    async def start(self) -> None:
        """Listen."""

    async def check(self) -> None:
        """Raise unless it really serves."""

    async def stop(self, grace_s: float) -> None:
        """Let what is under way finish for a while, and close."""


class BrokerDoor:
    """Opens the server that *make* makes; *at* is where it will listen.

    *about* says what it is, *try_it* how to see it work: ``{}`` is its address.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Server],
        counted: Counted,
        *,
        at: tuple[str, int],
        about: str,
        try_it: str,
    ) -> None:
        self.name = name
        self._make, self._counted = make, counted
        self._at, self._about, self._try_it = at, about, try_it
        self._advice = ""
        self._made: Server | None = None

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """Where it listens."""
        address = spelled(self._server.address)
        try_it = self._try_it.format(address)
        return (Endpoint(self.name, address, self._about, try_it, self._advice),)

    async def start(self) -> None:
        """Listen. Raises `DoorFailed`."""
        try:
            await self._open()
        except DoorFailed:
            raise
        except (TamboError, OSError) as error:
            raise cannot_open(self.name, self._at, error) from error

    async def _open(self) -> None:
        """Make the server and start it. Raises what it raises."""
        self._made = self._make()
        await self._made.start()

    async def watch(self) -> None:
        """Wait for a server that is a process of its own to end; one in this process does not."""
        watch = getattr(self._server, "watch", None)
        await (asyncio.Event().wait() if watch is None else watch())

    async def check(self) -> None:
        """Let the server see whether it really serves."""
        await self._server.check()

    async def metrics(self) -> Sequence[Metric]:
        """Return what the server has counted."""
        stats = self._server.stats
        return [
            Metric(name, about, getattr(stats, name), kind)
            for name, (kind, about) in self._counted.items()
        ]

    async def stop(self) -> None:
        """Let what is under way finish, and close."""
        if self._made is not None:
            await self._made.stop(GRACE_S)

    @property
    def _server(self) -> Server:
        if self._made is None:
            raise DoorFailed(self.name, "it is not open")
        return self._made
