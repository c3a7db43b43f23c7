"""Charts as inline SVG, without a chart library: the page needs no other file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

import msgspec

WIDE: Final = 1140
HALF: Final = 540
_HEIGHT: Final = 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 26
_TICKS: Final = 4
_DAY_S: Final = 86_400
_MINUTES: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080)
_ROUND_S: Final = tuple(60 * minutes for minutes in _MINUTES)
_LEAST: Final = 1e-300
"""Below it the powers of ten lose digits, and become 0 before their numbers do."""
_LABEL: Final = 90
"""The minimum distance of time labels, in pixels."""


class Series(msgspec.Struct, frozen=True):
    """A line of a chart; *kind* is its colour on the page."""

    name: str
    kind: str
    values: Sequence[float | None]
    filled: bool = False


class Frame(msgspec.Struct, frozen=True):
    """The coordinates of a chart: its width, number of points and highest value."""

    width: int
    count: int
    top: float

    def x(self, place: int) -> float:
        """Return the x coordinate of a point, by its index."""
        wide = self.width - _LEFT - _RIGHT
        return _LEFT + (wide * place / (self.count - 1) if self.count > 1 else wide / 2)

    def y(self, value: float) -> float:
        """Return the y coordinate of a value."""
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / self.top


def lines(
    id: str, at_ms: Sequence[int], series: Sequence[Series], *, step_s: int, width: int = WIDE
) -> str:
    """Return a chart of *series* over time."""
    highest = max((value or 0 for each in series for value in each.values), default=0)
    frame = Frame(width, len(at_ms), ceiling(highest))
    parts = [f'<svg class="chart" id="{escape(id)}" viewBox="0 0 {width} {_HEIGHT}" role="img"']
    parts.append(f' data-left="{_LEFT}" data-right="{width - _RIGHT}">')
    parts += _grid(frame)
    parts += _times(frame, at_ms, step_s)
    for each in series:
        parts += _line(frame, each)
    parts.append(f'<line class="cursor" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/></svg>')
    return "".join(parts)


def bars(rows: Sequence[tuple[str, float, str]], kind: str) -> str:
    """Return rows of a name, a value and how it is shown, with a bar for each."""
    highest = max((value for _, value, _ in rows), default=0) or 1
    cells = [
        f'<li><span class="name" title="{escape(name)}">{escape(name)}</span>'
        f'<span class="track"><span class="bar {escape(kind)}" '
        f'style="width:{max(0.5, 100 * value / highest):.1f}%"></span></span>'
        f'<span class="value">{escape(shown)}</span></li>'
        for name, value, shown in rows
    ]
    return f'<ol class="bars">{"".join(cells)}</ol>'


def ceiling(value: float) -> float:
    """Return the next round number: 1, 2, 2.5, 5 or 10 times a power of ten."""
    if value <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(max(value, _LEAST)))
    return float(next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= value))


def short(value: float) -> str:
    """Return a number in short form: 950, 1.2k, 34M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.1f}".removesuffix(".0") + letter
    return f"{value:.1f}".removesuffix(".0")


def moment(ms: int, *, day: bool) -> str:
    """Return a time in UTC as hour and minute, or with *day* as day and month."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%d %b" if day else "%H:%M")


def _grid(frame: Frame) -> list[str]:
    parts, right = list[str](), frame.width - _RIGHT
    for tick in range(_TICKS + 1):
        value = frame.top * tick / _TICKS
        y = frame.y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="axis" x="{_LEFT - 8}" y="{y + 4}">{short(value)}</text>')
    return parts


def _times(frame: Frame, at_ms: Sequence[int], step_s: int) -> list[str]:
    length_s = frame.count * step_s
    min_gap_s = length_s * _LABEL / frame.width
    every_s = next((each for each in _ROUND_S if each >= min_gap_s), length_s)
    # Over more than two days, labels with the time alone would be ambiguous.
    day = length_s > 2 * _DAY_S
    return [
        f'<text class="axis time" x="{frame.x(place):.1f}" y="{_HEIGHT - 8}">'
        f"{moment(at, day=day)}</text>"
        for place, at in enumerate(at_ms)
        if at % (every_s * 1000) < step_s * 1000
    ]


def _line(frame: Frame, series: Series) -> list[str]:
    runs = list[list[tuple[float, float]]]()
    for place, value in enumerate(series.values):
        if value is None:
            runs.append([])
            continue
        if not runs:
            runs.append([])
        runs[-1].append((frame.x(place), frame.y(value)))
    parts = []
    for run in filter(None, runs):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
        if series.filled:
            foot = _HEIGHT - _BOTTOM
            area = f"{run[0][0]:.1f},{foot} {points} {run[-1][0]:.1f},{foot}"
            parts.append(f'<polygon class="area {series.kind}" points="{area}"/>')
        if len(run) == 1:
            x, y = run[0]
            parts.append(f'<circle class="dot {series.kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>')
        parts.append(f'<polyline class="line {series.kind}" points="{points}"/>')
    return parts
