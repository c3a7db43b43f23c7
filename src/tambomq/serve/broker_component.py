"""The component of a protocol with a server of its own: GOMQ, KqueueMsgQ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol

from tambomq.access.denials import Denial
from tambomq.errors import ComponentFailed, TamboError
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.listeners import cannot_open
from tambomq.text import format_address

GRACE_S: Final = 5.0
"""How long calls and deliveries in progress may take at the stop."""

StatFields = Mapping[str, tuple[Literal["counter", "gauge"], str]]
"""The metrics of a server: by field of its stats, the kind and the help text."""


def denial_metrics(denials: Iterable[Denial]) -> list[Metric]:
    """Return the calls that a server has denied, by user and right."""
    return [
        Metric(
            "denied",
            "Calls denied, by user and the right that it lacks.",
            each.count,
            "counter",
            (("user", each.user), ("right", each.right)),
        )
        for each in denials
    ]


class Server(Protocol):
    """A server that a `BrokerComponent` runs."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, known once it is started."""

    @property
    def stats(self) -> object:
        """Its counters, by attribute."""

    async def start(self) -> None:
        """Listen."""

    async def check(self) -> None:
        """Raise unless it serves requests."""

    async def stop(self, grace_s: float) -> None:
        """Let calls in progress finish for *grace_s* seconds, and stop."""


class BrokerComponent:
    """Opens the server that *make* makes; *at* is where it will listen.

    *about* says what it is, *try_it* how to see it work: ``{}`` is its address.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Server],
        counted: StatFields,
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
    def endpoints(self) -> Sequence[ServedEndpoint]:
        """The address on which it listens."""
        address = format_address(*self.server.address)
        try_it = self._try_it.format(address)
        return (ServedEndpoint(self.name, address, self._about, try_it, self._advice),)

    async def start(self) -> None:
        """Listen. Raises `ComponentFailed`."""
        try:
            await self._open()
        except ComponentFailed:
            raise
        except (TamboError, OSError) as error:
            raise cannot_open(self.name, self._at, error) from error

    async def _open(self) -> None:
        """Make the server and start it. Raises what it raises."""
        self._made = self._make()
        await self._made.start()

    async def watch(self) -> None:
        """Wait for a server that is a process of its own to end; one in this process does not."""
        watch = getattr(self.server, "watch", None)
        await (asyncio.Event().wait() if watch is None else watch())

    async def check(self) -> None:
        """Run the server's own check."""
        await self.server.check()

    async def metrics(self) -> Sequence[Metric]:
        """Return the counters of the server."""
        stats = self.server.stats
        counted = [
            Metric(name, about, getattr(stats, name), kind)
            for name, (kind, about) in self._counted.items()
        ]
        return counted + denial_metrics(getattr(self.server, "denials", ()))

    async def stop(self) -> None:
        """Let calls in progress finish, and stop."""
        if self._made is not None:
            await self._made.stop(GRACE_S)

    @property
    def server(self) -> Server:
        """The server, once it is started. Raises `ComponentFailed` before."""
        if self._made is None:
            raise ComponentFailed(self.name, "it is not started")
        return self._made
