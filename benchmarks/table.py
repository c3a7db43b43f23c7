"""The table, as text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.model import DASH, TIMES, Line

HEAD = ("subject", "ours", "peer", "ratio (rounds)", "floor", "aim", "")


def rows(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """What stands in the table, below `HEAD`."""
    return [
        (
            f"{line.subject}: {line.title}",
            _number(line.ours, line.unit or "/s"),
            _number(line.peer, "/s"),
            _value(line),
            _bound(line),
            f"{line.aim:g}{TIMES}" if line.aim is not None else "",
            line.verdict + (f" ~{line.disturbed}/{line.turns}" if line.disturbed else ""),
        )
        for line in lines
    ]


def text(lines: Sequence[Line]) -> str:
    """The table with aligned columns."""
    table = [HEAD, *rows(lines)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place in (0, len(HEAD) - 1) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def markdown(lines: Sequence[Line]) -> str:
    """The table for a page."""
    table = [HEAD, ("---", *["---:"] * (len(HEAD) - 2), "---"), *rows(lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def _value(line: Line) -> str:
    if line.value is None or line.low is None or line.high is None:
        return DASH
    if line.peer is None:
        return "" if line.low == line.high else f"({line.low:.3g}{DASH}{line.high:.3g})"
    return f"{line.value:.2f}{TIMES} ({line.low:.2f}{DASH}{line.high:.2f})"


def _bound(line: Line) -> str:
    if line.floor is None:
        return ""
    return f"≤ {line.floor:g} {line.unit}" if line.unit else f"{line.floor:g}{TIMES}"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "/s":
        return f"{value:,.0f}/s"
    return f"{value:.2f} {unit}"
