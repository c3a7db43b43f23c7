"""``tambo pipeline run``: fill the lake, once or for as long as it is let."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tambomq.cli.chasqui_values import duration
from tambomq.cli.output import NothingThere, emit, emit_json, example
from tambomq.cli.pipeline_client import counted, every_command, redis_url
from tambomq.cli.pipeline_spark import lake_option, master_option, open_spark

if TYPE_CHECKING:
    from rich.status import Status

    from tambomq.pipeline.progress import Progress
    from tambomq.pipeline.run import Plan

_NAMED: Final = 5
"""So many queues are named that are not followed."""
_SPINNER: Final = 2
"""Columns that are taken by what turns before the line."""


class Shown(NamedTuple):
    """Where it is told what happens."""

    batch: Callable[[Progress, int, int], object]
    """Told what a batch was, the rows in the lake, and how many came late."""
    say: Callable[[str], object] = lambda _: None
    """Told what is waited for, where somebody watches."""


def _milliseconds(_ctx: click.Context, _param: click.Parameter, text: str) -> int:
    return duration(text)


@click.command(
    epilog=example(
        "tambo pipeline run --once",
        "tambo pipeline run --queue 'chasqui:*' --queue rsmq:orders --every 5s",
    )
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="PATTERN",
    help="What to follow: rsmq:orders, 'chasqui:*'; may be repeated. [all]",
)
@click.option("--once", is_flag=True, help="Take what is there now, and end.")
@click.option(
    "--every",
    default="10s",
    callback=_milliseconds,
    metavar="TIME",
    help="How often to look for more. [10s]",
)
@click.option(
    "--watermark",
    default="1m",
    callback=_milliseconds,
    metavar="TIME",
    help="How long after its end more may be told of a job. [1m]",
)
@click.option(
    "--give-up",
    default="7d",
    callback=_milliseconds,
    metavar="TIME",
    help="How long to wait for the end of a job nothing is told of. [7d]",
)
@click.option(
    "--batch-rows",
    type=click.IntRange(1000, 100_000_000),
    default=400_000,
    metavar="N",
    help="About how many rows to take at once. [400000]",
)
@click.option(
    "--on-loss",
    type=click.Choice(["stop", "count"]),
    default="stop",
    help="If entries were trimmed before they were read. [stop]",
)
@lake_option
@master_option
@every_command
def run(  # noqa: PLR0913  (one for each option)
    queues: tuple[str, ...],
    *,
    once: bool,
    every: int,
    watermark: int,
    give_up: int,
    batch_rows: int,
    on_loss: str,
    lake: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Follow queues into the lake: their events, dead letters and journals.

    It goes on where it was when it ended, however that was. Ctrl-C ends it after its batch.
    """
    # Spark takes half a second to import: not for a help page. This one tells if it is missing.
    import_module("tambomq.spark.driver")
    from tambomq.pipeline.batch import Rules
    from tambomq.pipeline.lake import Lake, default_path
    from tambomq.pipeline.run import Plan

    plan = Plan(
        redis_url(),
        queues,
        once=once,
        every_s=every / 1000,
        batch_rows=batch_rows,
        rules=Rules(watermark, give_up),
        fail_on_loss=on_loss == "stop",
    )
    _look(plan)
    found = Lake.make(lake or default_path())
    with found.locked(), _shown(as_json=as_json) as shown:
        _run(found, plan, master, shown)


def _look(plan: Plan) -> None:
    """Say so if there is nothing to follow; end if nothing is to be waited for."""
    from tambomq.pipeline.run import streams, unfollowed

    if others := unfollowed(plan):
        shown = ", ".join(others[:_NAMED]) + (", …" if len(others) > _NAMED else "")
        what = "queue without a journal is" if len(others) == 1 else "queues without a journal are"
        click.echo(f"{len(others)} {what} only counted, not followed: {shown}", err=True)
    if streams(plan):
        return
    what = " or ".join(plan.queues) or "any protocol"
    if plan.once:
        raise NothingThere(f"there is no queue of {what} with events or a journal")
    click.echo(f"no queue of {what} has events or a journal yet: waiting for one", err=True)


def _run(lake: Any, plan: Plan, master: str | None, shown: Shown) -> None:
    from tambomq.pipeline.batch import LATE_ROWS
    from tambomq.pipeline.lake import BRONZE
    from tambomq.pipeline.run import Pipeline

    pipeline = Pipeline(open_spark("tambo pipeline", master), lake, plan)
    with _interrupts() as asked:

        def is_to_end() -> bool:
            if asked():
                shown.say("ending after this batch; Ctrl-C once more ends it at once")
            return asked()

        shown.say("waiting for the first batch …")
        for progress in pipeline.follow(is_to_end):
            version = pipeline.version
            total = sum(file.rows for file in version.of(BRONZE))
            shown.batch(progress, total, version.facts.get(LATE_ROWS, 0))


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Yield what tells whether we were asked to end. Asked twice, we end at once."""
    asked: list[int] = []

    def note(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    # Spark sets one of its own, which would stop in the middle.
    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _shown(*, as_json: bool) -> Iterator[Shown]:
    """Yield what shows a batch: a line of JSON, one line on a terminal that changes, or a line."""
    if as_json:
        yield Shown(_emit_object)
    elif sys.stderr is None or not sys.stderr.isatty():
        yield Shown(lambda progress, total, late: emit(progress.line(total, late)))
    else:
        from rich.console import Console

        # A terminal of its own: while Java starts, what is written to stderr goes elsewhere.
        with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding) as file:
            console = Console(file=file)
            with console.status("starting Spark …") as status:
                live = _Live(status, console.width - _SPINNER)
                yield Shown(live.batch, status.update)
        live.end()


class _Live:
    """The line of a terminal that changes, and what is told when it is gone."""

    def __init__(self, status: Status, width: int) -> None:
        self._status, self._width = status, width
        self._batches = self._rows = 0
        self._last = ""

    def batch(self, progress: Progress, total: int, late: int) -> None:
        """Show a batch in place of the one before."""
        self._batches += 1
        self._rows += progress.rows
        self._last = progress.line(total, late)
        self._status.update(progress.line(total, late, self._width))

    def end(self) -> None:
        """Print what it came to."""
        if self._last:
            emit(self._last)
        batches = counted(self._batches, "batch", "batches")
        emit(f"ended after {batches} with {counted(self._rows, 'row')}")


def _emit_object(progress: Progress, total: int, late: int) -> None:
    import dataclasses

    emit_json({**dataclasses.asdict(progress), "total_rows": total, "late_rows": late})
