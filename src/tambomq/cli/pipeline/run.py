"""``tambo pipeline run``: fills the lake, once or until it is stopped."""

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

from tambomq.cli.durations import METAVAR, milliseconds, seconds
from tambomq.cli.output import NothingThere, emit, emit_json, example
from tambomq.cli.pipeline.client import counted, every_command, redis_url
from tambomq.cli.pipeline.spark import lake_option, master_option, open_spark

if TYPE_CHECKING:
    from rich.status import Status

    from tambomq.pipeline.ingest.progress import Progress
    from tambomq.pipeline.ingest.run import PipelineOptions

_NAMED: Final = 5
"""Queues named that are not followed."""
_SPINNER: Final = 2
"""Columns of the spinner before the line."""


class ProgressOutput(NamedTuple):
    """The callbacks that show progress."""

    batch: Callable[[Progress, int, int], object]
    """Called with a batch, the rows in the lake, and those that came late."""
    say: Callable[[str], object] = lambda _: None
    """Called with what is waited for; shown on a terminal only."""


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
    type=seconds,
    default="10s",
    metavar=METAVAR,
    help="How often to look for more: 5 (seconds), 500ms, 1m. [10s]",
)
@click.option(
    "--watermark",
    default="1m",
    type=milliseconds,
    metavar=METAVAR,
    help="How long events of a job may arrive after its end. [1m]",
)
@click.option(
    "--give-up",
    default="7d",
    type=milliseconds,
    metavar=METAVAR,
    help="How long to wait for the end of a job without events. [7d]",
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
    every: float,
    watermark: int,
    give_up: int,
    batch_rows: int,
    on_loss: str,
    lake: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Follow queues into the lake: their events, dead letters and journals.

    It resumes where the last run ended, also after a crash. Ctrl-C ends it after its batch.
    """
    # Spark takes half a second to import: not for a help page. This import reports a missing Spark.
    import_module("tambomq.spark.launch.session")
    from tambomq.pipeline.ingest.batch import LifecycleTimeouts
    from tambomq.pipeline.ingest.run import PipelineOptions
    from tambomq.pipeline.lake.lake import Lake, default_path

    options = PipelineOptions(
        redis_url(),
        queues,
        once=once,
        every_s=every,
        batch_rows=batch_rows,
        timeouts=LifecycleTimeouts(watermark, give_up),
        fail_on_loss=on_loss == "stop",
    )
    _look(options)
    found = Lake.make(lake or default_path())
    with found.locked(), _shown(as_json=as_json) as shown:
        _run(found, options, master, shown)


def _look(options: PipelineOptions) -> None:
    """Say so if there is nothing to follow; end if nothing is to be waited for."""
    from tambomq.pipeline.ingest.run import count_streams, unfollowed

    if others := unfollowed(options):
        shown = ", ".join(others[:_NAMED]) + (", …" if len(others) > _NAMED else "")
        what = "queue without a journal is" if len(others) == 1 else "queues without a journal are"
        click.echo(f"{len(others)} {what} only counted, not followed: {shown}", err=True)
    if count_streams(options):
        return
    what = " or ".join(options.queues) or "any protocol"
    if options.once:
        raise NothingThere(f"there is no queue of {what} with events or a journal")
    click.echo(f"no queue of {what} has events or a journal yet: waiting for one", err=True)


def _run(lake: Any, options: PipelineOptions, master: str | None, shown: ProgressOutput) -> None:
    from tambomq.pipeline.ingest.batch import LATE_ROWS
    from tambomq.pipeline.ingest.run import Pipeline
    from tambomq.pipeline.lake.lake import BRONZE

    pipeline = Pipeline(open_spark("tambo pipeline", master), lake, options)
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
    """Yield a function that is true after SIGINT or SIGTERM; a second signal ends at once."""
    asked: list[int] = []

    def note(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    # Spark's own handler would stop in the middle of a batch.
    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _shown(*, as_json: bool) -> Iterator[ProgressOutput]:
    """Yield what shows a batch: a line of JSON, one line on a terminal that changes, or a line."""
    if as_json:
        yield ProgressOutput(_emit_object)
    elif sys.stderr is None or not sys.stderr.isatty():
        yield ProgressOutput(lambda progress, total, late: emit(progress.line(total, late)))
    else:
        from rich.console import Console

        # A terminal of its own: while Java starts, what is written to stderr goes elsewhere.
        with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding) as file:
            console = Console(file=file)
            with console.status("starting Spark …") as status:
                live = _Live(status, console.width - _SPINNER)
                yield ProgressOutput(live.batch, status.update)
        live.end()


class _Live:
    """The line that changes on a terminal, and the summary after it."""

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
        """Print the summary."""
        if self._last:
            emit(self._last)
        batches = counted(self._batches, "batch", "batches")
        emit(f"ended after {batches} with {counted(self._rows, 'row')}")


def _emit_object(progress: Progress, total: int, late: int) -> None:
    import dataclasses

    emit_json({**dataclasses.asdict(progress), "total_rows": total, "late_rows": late})
