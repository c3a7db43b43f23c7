"""The report as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from string import Template
from typing import Final

import msgspec

from tambomq.pipeline.report.charts import HALF, Series, bars, lines, short
from tambomq.pipeline.report.figures import FigureRow, Figures, Spread

NOTHING: Final = "\N{EN DASH}"
_STEPS: Final = {60: "minute", 3600: "hour", 86_400: "day", 7 * 86_400: "week"}
_SPREADS: Final = ("p50", "p95", "p99")
_NAMED: Final = 10
"""Queues named that are not followed."""
_COLUMNS: Final = (
    *("entered", "done", "failed", "retried", "dead", "backlog", "oldest"),
    *("wait p50", "p95", "p99", "run p50", "p95", "p99"),
)


def html(figures: Figures) -> str:
    """Return the page."""
    template = Template(resources.files(__name__).joinpath("report.html").read_text("utf-8"))
    at = [point.at_ms for point in figures.points]
    return template.substitute(
        period=escape(period(figures)),
        step=step(figures.step_s),
        tiles=_tiles(figures),
        throughput=_throughput(figures, at),
        throughput_legend=_legend("entered", "done", "failed", "dead"),
        spread_legend=_legend(*_SPREADS),
        waits=_spreads("waits", figures, at, [point.wait for point in figures.points]),
        runs=_spreads("runs", figures, at, [point.run for point in figures.points]),
        backlog=_backlog(figures, at),
        reasons=_reasons(figures),
        slowest=_slowest(figures),
        table=_table(figures.lines),
        notes=_notes(figures),
        footer=escape(f"From {figures.lake}, made {_moment(figures.made_ms)} by TamboMQ."),
        # No queue name may end the script element.
        json=msgspec.json.encode(figures).decode().replace("<", "\\u003c"),
    )


def period(figures: Figures) -> str:
    """Return the period of the report, in words."""
    return f"{_moment(figures.from_ms)} to {_moment(figures.until_ms)}"


def step(step_s: int) -> str:
    """Return the length of a step, in words."""
    if step_s in _STEPS:
        return _STEPS[step_s]
    for size, unit in ((3600, "hours"), (60, "minutes")):
        if step_s >= size:
            return f"{step_s // size} {unit}"
    return f"{step_s} seconds"


def duration(ms: int | None) -> str:
    """Return a duration in short form."""
    if ms is None:
        return NOTHING
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= size:
            return f"{ms / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{ms} ms"


def named(line: FigureRow) -> str:
    """Return the label of a row: name and queue."""
    return ", ".join(filter(None, (line.name, f"{line.protocol}:{line.queue}")))


def oldest(line: FigureRow) -> str:
    """Return the age of the oldest job that has not ended."""
    known = line.backlog and line.oldest_age_s is not None
    return duration((line.oldest_age_s or 0) * 1000) if known else NOTHING


def unfollowed(figures: Figures) -> str:
    """Return the queues that are counted and not followed, in words; empty if none."""
    found = figures.unfollowed
    if not found:
        return ""
    shown = ", ".join(f"{each.protocol}:{each.queue} ({each.backlog:,})" for each in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"Not followed, since they have no journal; only their backlog is known: {shown}{more}."


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%d %b %Y %H:%M UTC")


def _tiles(figures: Figures) -> str:
    totals = figures.totals
    tiles = (
        ("entered", short(totals.entered), "entered"),
        ("done", short(totals.done), "done"),
        ("failed", short(totals.failed), "failed runs"),
        ("dead", short(totals.dead), "dead"),
        ("backlog", short(figures.backlog), "not ended yet"),
        ("", duration(figures.wait.p95), "p95 of the wait"),
        ("", duration(figures.run.p95), "p95 of the run"),
    )
    return "".join(
        f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for kind, value, name in tiles
    )


def _legend(*kinds: str) -> str:
    words = {"failed": "failed runs"}
    parts = (f'<span><i class="{kind}"></i>{words.get(kind, kind)}</span>' for kind in kinds)
    return f'<div class="legend">{"".join(parts)}</div>'


def _throughput(figures: Figures, at: Sequence[int]) -> str:
    counts = [point.counts for point in figures.points]
    series = [
        Series("entered", "entered", [each.entered for each in counts], filled=True),
        Series("done", "done", [each.done for each in counts]),
        Series("failed runs", "failed", [each.failed for each in counts]),
        Series("dead", "dead", [each.dead for each in counts]),
    ]
    return lines("throughput", at, series, step_s=figures.step_s)


def _backlog(figures: Figures, at: Sequence[int]) -> str:
    values = [point.backlog for point in figures.points]
    series = [Series("backlog", "backlog", values, filled=True)]
    return lines("backlog", at, series, step_s=figures.step_s)


def _spreads(id: str, figures: Figures, at: Sequence[int], spreads: Sequence[Spread]) -> str:
    series = [Series(name, name, [getattr(each, name) for each in spreads]) for name in _SPREADS]
    return lines(id, at, series, step_s=figures.step_s, width=HALF)


def _reasons(figures: Figures) -> str:
    if not figures.reasons:
        return '<p class="none">Nothing has died.</p>'
    rows = [
        (": ".join(filter(None, (each.reason, each.error))) or "(no reason recorded)", each.dead)
        for each in figures.reasons
    ]
    return bars([(name, dead, f"{dead:,}") for name, dead in rows], "dead")


def _slowest(figures: Figures) -> str:
    if not figures.slowest:
        return '<p class="none">Nothing has run.</p>'
    rows = [(named(each), each.run.p95 or 0) for each in figures.slowest]
    return bars([(name, ms, duration(ms)) for name, ms in rows], "p95")


def _table(found: Sequence[FigureRow]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    rows = "".join(f"<tr>{_row(line)}</tr>" for line in found)
    words = '<th class="text">queue</th><th class="text">name</th>'
    return f"<table><thead><tr>{words}{head}</tr></thead><tbody>{rows}</tbody></table>"


def _notes(figures: Figures) -> str:
    counted = figures.counted_ms
    notes = [
        f"The backlog was counted in the queues themselves at {_moment(counted)}."
        if counted is not None
        else "The backlog is computed from events: queues were not counted.",
        unfollowed(figures),
    ]
    return "".join(f'<p class="none">{escape(note)}</p>' for note in notes if note)


def _row(line: FigureRow) -> str:
    counts = line.counts
    place = escape(f"{line.protocol}:{line.queue}")
    cells = [f'<td class="text" title="{place}">{place}</td>']
    cells.append(f'<td class="text">{escape(line.name)}</td>')
    numbers = (counts.entered, counts.done, counts.failed, counts.retried)
    cells += [f"<td>{number:,}</td>" for number in numbers]
    cells.append(f'<td class="{"bad" if counts.dead else ""}">{counts.dead:,}</td>')
    cells.append(f"<td>{line.backlog:,}</td>")
    cells.append(f"<td>{oldest(line)}</td>")
    times = [getattr(spread, name) for spread in (line.wait, line.run) for name in _SPREADS]
    cells += [f"<td>{duration(ms)}</td>" for ms in times]
    return "".join(cells)
