"""``tambo pipeline sql``: query queues and the lake with SQL."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import click

from tambomq.cli.output import (
    NothingThere,
    emit_csv,
    emit_json,
    emit_table,
    example,
    visible,
)
from tambomq.cli.pipeline.client import counted, every_command, redis_url
from tambomq.cli.pipeline.spark import lake_option, master_option, open_lake, open_spark

LIMIT: Final = 1000


@click.command(
    epilog=example(
        "tambo pipeline sql 'SELECT reason, count(*) FROM chasqui_dlq GROUP BY reason'",
        "tambo pipeline sql 'SELECT queue, sum(dead) FROM gold GROUP BY queue' --csv",
        "tambo pipeline sql --tables",
    )
)
@click.argument("text", metavar="SQL", required=False)
@click.option("--queue", default="*", metavar="PATTERN", help="Only these queues. [*]")
@click.option("--ns", default="", metavar="NAME", help="RSMQ's namespace. [rsmq]")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option(
    "--limit", default=LIMIT, type=click.IntRange(1), help=f"At most this many rows. [{LIMIT}]"
)
@click.option("--tables", is_flag=True, help="Show what can be asked, and stop.")
@lake_option
@master_option
@every_command
def sql(  # noqa: PLR0913  (its options)
    text: str | None,
    *,
    queue: str,
    ns: str,
    as_csv: bool,
    limit: int,
    tables: bool,
    lake: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Query queues as they are now, and the lake, with Spark SQL.

    Reading consumes nothing. Tables of the lake are there once `tambo pipeline run` has filled it.
    """
    from tambomq.pipeline import sql as views

    if tables:
        _show_tables(as_json=as_json)
        return
    if not text or not text.strip():
        raise click.UsageError("give the SQL; --tables shows what can be asked")
    if as_csv and as_json:
        raise click.UsageError("--csv or --json, not both")
    found_lake = open_lake(lake) if views.needs_lake(text) else None
    scope = views.QueryScope(redis_url(), found_lake, queue, ns)
    spark = open_spark("tambo-sql", master, over=found_lake)
    found = views.ask(spark, scope, text)
    rows = views.collected(found, limit + 1)
    _show(found.columns, rows[:limit], as_csv=as_csv, as_json=as_json)
    if len(rows) > limit:
        shown = counted(limit, "row")
        click.echo(f"… there is more: --limit shows more than {shown}", err=True)
    if not rows and not as_json:
        raise NothingThere


def _show(columns: list[str], rows: list[Any], *, as_csv: bool, as_json: bool) -> None:
    if as_json:
        emit_json([{name: _plain(row[name]) for name in columns} for row in rows])
    elif as_csv:
        emit_csv(columns, [[_cell(value) for value in row] for row in rows])
    else:
        emit_table(columns, [[_cell(value) for value in row] for row in rows])


def _show_tables(*, as_json: bool) -> None:
    from tambomq.pipeline.sql import columns_of

    found = columns_of()
    if as_json:
        emit_json(dict(found))
        return
    emit_table(("table", "columns"), [(name, ", ".join(columns)) for name, columns in found])


def _plain(value: Any) -> Any:
    """Return *value* as JSON has it; rows inside rows become objects."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if hasattr(value, "asDict"):
        return {name: _plain(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, int | float | str) and not isinstance(value, bool)):
        return value
    if isinstance(value, bytes | bytearray):
        return visible(bytes(value).decode("utf-8", "backslashreplace"))
    return str(_plain(value))
