"""What a process serves through: a door that opens, is watched, is checked, counts, and closes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A place to find something at, without secrets."""

    name: str
    address: str
    about: str
    """What it is."""
    try_it: str = ""
    """A command that shows it works."""
    advice: str = ""
    """How to have it otherwise; what stands on a second line is a command."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a door counts or measures; its whole name begins with the door's."""

    name: str
    about: str
    value: float
    kind: Literal["counter", "gauge"] = "gauge"
    labels: tuple[tuple[str, str], ...] = ()
    """Names and values; the same names, in the same order, for every metric of this name."""


class Door(Protocol):
    """One thing a process opens at its start and closes at its end."""

    @property
    def name(self) -> str:
        """What the log calls it."""

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """Where it is, known once it is open."""

    async def start(self) -> None:
        """Open it. May be cancelled; then, and when it fails, `stop` is called all the same."""

    async def watch(self) -> None:
        """Keep it open: never returns, raises when it cannot be kept."""

    async def check(self) -> None:
        """See whether it really serves; raises if not. Only called while it is open."""

    async def metrics(self) -> Sequence[Metric]:
        """Return what it has counted. Only called while it is open; may raise `TamboError`."""

    async def stop(self) -> None:
        """Close it, however far `start` came."""
