"""The values of a benchmark: what a subject declares, and what measuring it yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]

MISSED = "✗ missed"
HELD = "✓"
TIMES, DASH = "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
UNKNOWN = DASH


@dataclass(frozen=True, slots=True)
class Player:
    """A process that measures itself when asked; see `benchmarks.players.talk`."""

    name: str
    command: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)
    needs: Path | None = None
    """What must exist, or the player is not installed."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A player at a task of a given size."""

    name: str
    player: Player
    task: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours divided by the peer's. At least *floor*; *aim* is where we want to be."""

    title: str
    ours: Contender
    peer: Contender
    floor: float
    aim: float | None = None
    what: str = "rate"


@dataclass(frozen=True, slots=True)
class Limit:
    """A value of ours with an upper *limit*; without a limit it is only shown."""

    title: str
    ours: Contender
    what: str
    unit: str
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Bout:
    """Contenders that take turns. *before* and *after* surround each turn."""

    contenders: Sequence[Contender]
    rounds: int
    before: Callable[[str, Contender], Mapping[str, Any]] = lambda _url, _contender: {}
    """Prepares a turn at the server; what it returns is added to the order."""
    after: Callable[[str, Contender], None] = lambda _url, _contender: None


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured under one name."""

    name: str
    players: Sequence[Player]
    bouts: Sequence[Bout]
    rows: Sequence[Ratio | Limit]

    def only(self, words: Sequence[str]) -> Subject:
        """Return the rows whose title contains one of *words*, and the bouts they need."""
        wanted = [word.lower() for word in words]
        rows = [row for row in self.rows if any(word in row.title.lower() for word in wanted)]
        names = {name for row in rows for name in _contenders(row)}
        bouts = [b for b in self.bouts if names.intersection(c.name for c in b.contenders)]
        return replace(self, bouts=bouts, rows=rows)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn brought, and the share of all cores that others used meanwhile."""

    values: Mapping[str, Any]
    disturbed: float
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table."""

    subject: str
    title: str
    ours: float | None
    peer: float | None
    value: float | None
    """The ratio of medians, or the median itself."""
    low: float | None
    high: float | None
    """The same from the least and the most favourable round."""
    floor: float | None
    aim: float | None
    unit: str
    disturbed: int
    """How many of the turns it rests on were disturbed to the end."""
    turns: int
    verdict: str


def line(subject: str, row: Ratio | Limit, turns: Mapping[str, Sequence[Turn]]) -> Line:
    """Sum up the *turns* of a row's contenders."""
    taken = [turns.get(name, ()) for name in _contenders(row)]
    values = [[float(turn.values[row.what]) for turn in each] for each in taken]
    noisy = sum(not turn.is_quiet for each in taken for turn in each)
    counted = noisy, sum(map(len, taken))
    if not all(values):
        return _empty(subject, row, values[0])
    if isinstance(row, Limit):
        return _limit(subject, row, values[0], counted)
    return _ratio(subject, row, values, counted)


def _contenders(row: Ratio | Limit) -> list[str]:
    """Return the names of ours and, if there is one, of the peer."""
    return [row.ours.name] + ([row.peer.name] if isinstance(row, Ratio) else [])


def _empty(subject: str, row: Ratio | Limit, ours: Sequence[float]) -> Line:
    unit = "" if isinstance(row, Ratio) else row.unit
    floor = row.floor if isinstance(row, Ratio) else row.limit
    aim = row.aim if isinstance(row, Ratio) else None
    own = median(ours) if ours else None
    return Line(subject, row.title, own, None, None, None, None, floor, aim, unit, 0, 0, UNKNOWN)


def _limit(subject: str, row: Limit, values: Sequence[float], counted: tuple[int, int]) -> Line:
    value = median(values)
    verdict = UNKNOWN if row.limit is None else HELD if value <= row.limit else MISSED
    spread = min(values), max(values)
    return Line(
        subject,
        row.title,
        value,
        None,
        value,
        *spread,
        row.limit,
        None,
        row.unit,
        *counted,
        verdict,
    )


def _ratio(
    subject: str, row: Ratio, values: Sequence[Sequence[float]], counted: tuple[int, int]
) -> Line:
    ours, peer = map(median, values)
    rounds = [own / other for own, other in zip(*values, strict=False)]
    verdict = HELD if ours / peer >= row.floor else MISSED
    spread = min(rounds), max(rounds)
    return Line(
        subject,
        row.title,
        ours,
        peer,
        ours / peer,
        *spread,
        row.floor,
        row.aim,
        "",
        *counted,
        verdict,
    )
