"""``tambo pipeline report``: figures from the lake, as a page, as tables and as JSON."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tambomq.cli.durations import METAVAR, milliseconds
from tambomq.cli.output import emit, emit_json, emit_table, example
from tambomq.cli.pipeline.client import every_command
from tambomq.cli.pipeline.spark import lake_option, master_option, open_lake, open_spark
from tambomq.cli.times import utc
from tambomq.clock import now_ms
from tambomq.errors import SettingsError

if TYPE_CHECKING:
    from tambomq.pipeline.report.figures import FigureRow, Figures

OUT: Final = "tambo-report.html"
SHOWN: Final = 30


@click.command(
    epilog=example(
        "tambo pipeline report",
        "tambo pipeline report --since 24h --queue 'chasqui:*' --out today.html --open",
        "tambo pipeline report --json",
    )
)
@click.option(
    "--since",
    type=milliseconds,
    metavar=METAVAR,
    help="Only the last 90m, 24h, 7d; a plain number is seconds. [all]",
)
@click.option("--queue", "queues", multiple=True, metavar="PATTERN", help="Only these; repeatable.")
@click.option(
    "--out", default=OUT, metavar="FILE", help=f"Where the page goes; - for nowhere. [{OUT}]"
)
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
@lake_option
@master_option
@every_command
def report(
    *,
    since: int | None,
    queues: tuple[str, ...],
    out: str,
    show: bool,
    lake: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Make a page of charts from the lake, and print the same as tables.

    Patterns are as in `chasqui:orders` and `rsmq:*`. Times are of UTC.
    """
    from tambomq.pipeline.report.report import figures

    found_lake = open_lake(lake)
    spark = open_spark("tambo-report", master, over=found_lake)
    begin = None if since is None else now_ms() - since
    found = figures(spark, found_lake, from_ms=begin, queues=queues)
    path = None if out == "-" else _write(found, Path(out))
    if as_json:
        emit_json(msgspec.to_builtins(found))
        return
    _show(found)
    if path:
        emit(f"\nThe page is {path}")
        if show:
            webbrowser.open(path.as_uri())


def _write(figures: Figures, path: Path) -> Path:
    from tambomq.pipeline.report.page import html

    path = path.expanduser().absolute()
    try:
        path.write_text(html(figures), "utf-8")
    except OSError as error:
        raise SettingsError(
            f"cannot write {path}: {error.strerror}; choose another --out"
        ) from error
    return path


def _show(figures: Figures) -> None:
    from tambomq.pipeline.report.page import duration

    totals = figures.totals
    runs = "run" if totals.failed == 1 else "runs"
    emit(f"{utc(figures.from_ms)} to {utc(figures.until_ms)}")
    emit(
        f"{totals.entered:,} entered, {totals.done:,} done, {totals.failed:,} {runs} failed, "
        f"{totals.retried:,} retried, {totals.dead:,} dead, {figures.backlog:,} not ended yet\n"
    )
    columns = ("queue", "name", "entered", "done", "failed", "dead", "backlog", "oldest")
    spreads = ("wait p50", "p95", "p99", "run p50", "p95", "p99")
    emit_table((*columns, *spreads), [_row(line) for line in figures.lines[:SHOWN]])
    if len(figures.lines) > SHOWN:
        emit(f"… and {len(figures.lines) - SHOWN} more: the page and --json have all.")
    _show_unfollowed(figures)
    if figures.reasons:
        emit("")
        rows = [(each.reason, each.error, each.dead, each.queue) for each in figures.reasons]
        emit_table(("dead by reason", "error", "times", "most in"), rows)
    if figures.slowest:
        emit("")
        slow = [(each.queue, each.name, duration(each.run.p95)) for each in figures.slowest]
        emit_table(("slowest", "name", "p95 of the run"), slow)


def _show_unfollowed(figures: Figures) -> None:
    from tambomq.pipeline.report.page import unfollowed

    if text := unfollowed(figures):
        emit(f"\n{text}")


def _row(line: FigureRow) -> tuple[Any, ...]:
    from tambomq.pipeline.report.page import duration, oldest

    counts = line.counts
    spreads = [getattr(each, p) for each in (line.wait, line.run) for p in ("p50", "p95", "p99")]
    return (
        f"{line.protocol}:{line.queue}",
        line.name,
        *(counts.entered, counts.done, counts.failed, counts.dead, line.backlog),
        oldest(line),
        *(duration(ms) for ms in spreads),
    )
