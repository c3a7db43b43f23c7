"""``tambo pipeline compact``: fewer, larger files in the lake, and only the days that are kept."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from tambomq.cli.chasqui_values import duration
from tambomq.cli.output import emit, emit_json, example, json_option, verbose_option
from tambomq.cli.pipeline_client import counted
from tambomq.cli.pipeline_spark import lake_option, open_lake

_DAY_MS = 86_400_000


def _days(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    days, rest = divmod(duration(text), _DAY_MS)
    if rest or not days:
        raise click.BadParameter(f"{text!r} is not a number of days: write 30d")
    return days


@click.command(epilog=example("tambo pipeline compact", "tambo pipeline compact --retain 30d"))
@click.option(
    "--retain",
    callback=_days,
    metavar="DAYS",
    help="Forget all that was recorded or ended before so many days: 30d. [keep all]",
)
@lake_option
@json_option
@verbose_option
def compact(*, retain: int | None, lake: Path | None, as_json: bool) -> None:
    """Put the lake's small files together, and delete what nobody needs any more.

    The pipeline may run meanwhile. Files are deleted an hour after they were replaced.
    """
    # This one tells if Spark is not installed, whose columns the lake has.
    import_module("tambomq.spark.driver")
    from tambomq.pipeline.compact import compact as work

    done = work(open_lake(lake), retain_days=retain)
    if as_json:
        emit_json(done)
        return
    emit(f"{counted(done.merged, 'small file')} became {done.into}.")
    if retain is not None:
        rows = counted(done.dropped_rows, "row")
        days = counted(done.dropped_days, "day was", "days were")
        emit(f"{rows} of {days} let go.")
    gone = counted(done.deleted, "file that nobody needs was", "files that nobody needs were")
    emit(f"{gone} deleted, {counted(done.freed_bytes, 'byte')}.")
