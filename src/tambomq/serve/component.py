"""The interface of a component of ``tambo serve``, with the endpoints and metrics it reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class ServedEndpoint:
    """An address that a component reports, without secrets."""

    name: str
    address: str
    about: str
    """The name of the service there."""
    try_it: str = ""
    """A command that shows that it works."""
    advice: str = ""
    """How to configure it differently; a second line is a command."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a component reports; Prometheus sees ``tambo_<component>_<name>``."""

    name: str
    about: str
    value: float
    kind: Literal["counter", "gauge", "histogram"] = "gauge"
    labels: tuple[tuple[str, str], ...] = ()
    """Pairs of name and value. Metrics of one name have the same label names in the same order."""
    buckets: tuple[tuple[str, int], ...] = ()
    """Of a histogram, whose value is the sum: each upper bound, and how many are not above it."""


class Component(Protocol):
    """A part of the process that is started with it, monitored, and stopped with it."""

    @property
    def name(self) -> str:
        """The name in logs, metrics, ``/healthz`` and flags."""

    @property
    def endpoints(self) -> Sequence[ServedEndpoint]:
        """The addresses it serves, known once it is started."""

    async def start(self) -> None:
        """Start it. If this fails or is cancelled, `stop` is called all the same."""

    async def watch(self) -> None:
        """Keep it running. Never returns; raises when it cannot be kept running."""

    async def check(self) -> str | None:
        """Raise unless it serves requests. Called only while it is started.

        Return why it serves only in part, if so.
        """

    async def metrics(self) -> Sequence[Metric]:
        """Return its numbers. Called only while it is started; may raise `TamboError`."""

    async def stop(self) -> None:
        """Stop it, even if `start` did not complete."""
