"""``tambo pipeline compact``: fewer, larger files in the lake, and only the days that are kept."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from tambomq.cli.durations import whole_days
from tambomq.cli.output import emit, emit_json, example, json_option, verbose_option
from tambomq.cli.pipeline.client import counted
from tambomq.cli.pipeline.spark import lake_option, open_lake


@click.command(epilog=example("tambo pipeline compact", "tambo pipeline compact --retain 30d"))
@click.option(
    "--retain",
    type=whole_days,
    metavar="DAYS",
    help="Delete rows that were recorded, or ended, more than so many days ago: 30d. [keep all]",
)
@lake_option
@json_option
@verbose_option
def compact(*, retain: int | None, lake: Path | None, as_json: bool) -> None:
    """Merge the lake's small files, and delete files that are not used any more.

    The pipeline may run meanwhile. Files are deleted an hour after they were replaced.
    """
    # Reports a missing Spark, which the lake's columns need.
    import_module("tambomq.spark.launch.session")
    from tambomq.pipeline.lake.compact import compact as work

    done = work(open_lake(lake), retain_days=retain)
    if as_json:
        emit_json(done)
        return
    emit(f"{counted(done.merged, 'small file')} merged into {done.into}.")
    if retain is not None:
        rows = counted(done.dropped_rows, "row")
        days = counted(done.dropped_days, "day was", "days were")
        emit(f"{rows} of {days} dropped.")
    deleted = counted(done.deleted, "unused file was", "unused files were")
    emit(f"{deleted} deleted, {counted(done.freed_bytes, 'byte')}.")
