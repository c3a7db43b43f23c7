"""The display of ``tambo demo`` while it runs, and the result of each protocol.

Everything here goes to stderr: bars on a terminal, else a line for each thing that happens.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import click

from tambomq.cli.output import visible
from tambomq.errors import TamboError
from tambomq.log import mask_url
from tambomq.store.endpoint import Tls

T = TypeVar("T")

# Ten steps a second are smooth for eyes.
_STEPS_A_SECOND: Final = 10
# Beyond the time for sending: what a busy machine may need.
PATIENCE_S: Final = 20.0
MIN_PER_SECOND: Final = 500


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The traffic of a demo, and the servers it goes to."""

    name: str
    """The unique name of every queue, key and consumer that is created."""
    count: int
    seconds: float
    """Over which sending is spread."""
    redis_url: str = field(repr=False)
    gomq: str
    kqueue: tuple[str, int]
    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    keep: bool = False
    """Whether queues are left behind, with a record of what passed through them."""

    @property
    def within_s(self) -> float:
        """After so long it is given up."""
        return self.seconds + PATIENCE_S + self.count / MIN_PER_SECOND

    async def steps(self) -> AsyncIterator[range]:
        """Yield the numbers below `count` in runs, spread over the time."""
        steps = max(1, min(self.count, int(self.seconds * _STEPS_A_SECOND)))
        for step in range(steps):
            yield range(self.count * step // steps, self.count * (step + 1) // steps)
            await asyncio.sleep(self.seconds / steps)


@dataclass(slots=True)
class DemoResult:
    """The result of the traffic through one protocol."""

    protocol: str
    display: DemoDisplay = field(repr=False)
    total: int = 0
    """How many are expected to be received."""
    sent: int = 0
    received: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    """Further counters."""
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def expect(self, total: int, *notes: str) -> None:
        """Set the length of the bar, and the names of further counters."""
        self.total, self.notes = total, dict.fromkeys(notes, 0)
        self.display.draw(self)

    def got(self, count: int = 1) -> None:
        """Count what was received."""
        self.received += count
        self.display.draw(self)

    def note(self, what: str, text: str = "") -> None:
        """Increment a further counter; show *text* the first time."""
        self.notes[what] += 1
        if text and self.notes[what] == 1:
            self.say(text)

    def say(self, text: str) -> None:
        """Show a line of progress."""
        self.display.say(self, text)

    def check(self, fact: object, otherwise: str) -> None:
        """Record an error unless *fact* is true."""
        if not fact:
            self.wrong.append(otherwise)

    async def of(self, traffic: Coroutine[Any, Any, None], within_s: float) -> Self:
        """Wait for *traffic*, whose faults become part of the outcome."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(within_s):
                await traffic
        except TimeoutError:
            self.wrong.append(f"{self.received} of {self.total} were received in {within_s:g} s")
        except TamboError as error:
            self.wrong.append(mask_url(str(error)))
        self.seconds = time.monotonic() - began
        self.say("; ".join(self.wrong) or "all as expected")
        return self


class DemoDisplay:
    """Shows the progress of all protocols."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Draw bars, if there is a terminal."""
        if sys.stderr is not None and sys.stderr.isatty():
            self._bars = _bars()
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the bars as they are."""
        if self._bars is not None:
            self._bars.stop()

    def draw(self, outcome: DemoResult) -> None:
        """Show how far it is."""
        if self._bars is not None:
            self._bars.update(self._task(outcome), completed=outcome.received, total=outcome.total)

    def say(self, outcome: DemoResult, text: str) -> None:
        """Show what happens."""
        if self._bars is None:
            click.echo(f"{outcome.protocol}: {visible(text)}", err=True)
        else:
            self._bars.update(self._task(outcome), said=visible(text))

    def _task(self, outcome: DemoResult) -> Any:
        if outcome.protocol not in self._tasks:
            self._tasks[outcome.protocol] = self._bars.add_task(
                outcome.protocol, total=None, said=""
            )
        return self._tasks[outcome.protocol]


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Wait for all; when one fails, or this is cancelled, see the others end first."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        # Once each: a second time would stop their cleaning.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    # The error that ended the others, not that they were ended.
    tasks.sort(key=asyncio.Task.cancelled)
    return [task.result() for task in tasks]


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description:8}"),
        BarColumn(),
        MofNCompleteColumn(),
        # Brackets in a server's text are no markup.
        TextColumn("{task.fields[said]}", markup=False),
        console=Console(stderr=True),
    )
