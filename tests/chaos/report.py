"""The report of a chaos run: a table of protocols and faults, and violations with their events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tests.chaos.checker import Verdict, Violation
from tests.chaos.nemeses import GROUPS
from tests.chaos.plan import Episode

EVENTS_SHOWN: Final = 8
VIOLATIONS_SHOWN: Final = 5
_HEADER: Final = ("protocol", "fault", "faults", "runs", "confirmed", "lost", "again", "verdict")


@dataclass(slots=True)
class Cell:
    """What came of one fault of one protocol."""

    protocol: str
    fault: str
    faults: int = 0
    """How often it was done."""
    runs: int = 0
    """In how many runs."""
    confirmed: int = 0
    lost: int = 0
    again: int = 0
    """Messages that were completed again: each is excused by a fault, or a violation."""
    violations: set[str] = field(default_factory=set)

    @property
    def verdict(self) -> str:
        """The kinds of violations of the runs that it was part of; ``ok`` if there were none.

        A run in which the fault was not done, or nothing was confirmed, shows nothing.
        """
        shows = self.faults and self.confirmed
        return ", ".join(sorted(self.violations)) or ("ok" if shows else "nothing shown")

    @property
    def row(self) -> tuple[str, ...]:
        """Its row in the table."""
        numbers = (self.faults, self.runs, self.confirmed, self.lost, self.again)
        return (self.protocol, self.fault, *(f"{each:,}" for each in numbers), self.verdict)


class Report:
    """Adds up episodes."""

    def __init__(self, seed: int) -> None:
        self.seed, self.began = seed, datetime.now(UTC)
        self.cells: dict[tuple[str, str], Cell] = {}
        self.found: list[tuple[Episode, Verdict]] = []

    def add(self, episode: Episode, verdict: Verdict) -> None:
        """Add what an episode has shown to the cells of each of its faults."""
        if verdict.violations:
            self.found.append((episode, verdict))
        for nemesis in episode.nemeses:
            key = episode.subject.name, nemesis.name
            cell = self.cells.setdefault(key, Cell(*key))
            cell.faults += verdict.counts.get(f"did {nemesis.name}", 0)
            cell.runs += 1
            cell.confirmed += verdict.counts["confirmed"]
            cell.lost += verdict.kinds.get("lost", 0) + verdict.counts.get("lost, excused", 0)
            cell.again += verdict.counts["completed again"]
            cell.violations.update(verdict.kinds)

    @property
    def table(self) -> list[str]:
        """The table, as Markdown shows it."""
        return markdown(_HEADER, (cell.row for cell in self.cells.values()))

    @property
    def matrix(self) -> Iterator[str]:
        """Tables of faults by protocols: how often each was done, to how many messages."""
        protocols = list(dict.fromkeys(protocol for protocol, _ in self.cells))
        for title, nemeses in GROUPS.items():
            found = [each.name for each in nemeses if self._has(each.name)]
            if found:
                rows = ([name, *(self._brief(each, name) for each in protocols)] for name in found)
                yield from ("", f"### {title}", "", *markdown(("fault", *protocols), rows))

    def _has(self, fault: str) -> bool:
        return any(name == fault for _, name in self.cells)

    def _brief(self, protocol: str, fault: str) -> str:
        cell = self.cells.get((protocol, fault))
        if cell is None:
            return ""
        lost = f", {cell.lost:,} lost" if cell.lost else ""
        return f"{cell.verdict}: {cell.faults}×, {cell.confirmed:,}{lost}"

    @property
    def json(self) -> dict[str, Any]:
        """All of it, as plain values."""
        return {
            "seed": self.seed,
            "began": self.began.isoformat(timespec="seconds"),
            "cells": [
                asdict(cell) | {"violations": sorted(cell.violations), "verdict": cell.verdict}
                for cell in self.cells.values()
            ],
            "violations": [
                {
                    "repeat": repeat(episode),
                    "found": [asdict(each) for each in verdict.violations],
                }
                for episode, verdict in self.found
            ],
        }


def repeat(episode: Episode, *, seconds: float | None = None, compose: int | None = None) -> str:
    """Return the command that repeats an episode."""
    nemeses = " ".join(f"--nemesis {nemesis.name}" for nemesis in episode.nemeses)
    length = f" --seconds {seconds:g}" if seconds else ""
    length += f" --compose {compose}" if compose else ""
    return (
        f"python -m tests.chaos --once --seed {episode.seed}{length}"
        f" --protocol {episode.subject.name} {nemeses}"
    )


def shown(violations: Sequence[Violation]) -> Iterable[str]:
    """Yield lines that show the first violations, each with its events."""
    for violation in violations[:VIOLATIONS_SHOWN]:
        yield f"  {violation.kind}: {violation.message}"
        for event in violation.excerpt[:EVENTS_SHOWN]:
            yield f"    {event.line()}"
    if (more := len(violations) - VIOLATIONS_SHOWN) > 0:
        yield f"  and {more} more"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown, in columns of equal width."""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, tuple("-" * width for width in widths))
    return [f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines]
