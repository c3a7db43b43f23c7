"""``chasqui repeatable``: repeatable jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click

from tambomq.chasqui.repeat import RepeatableMeta, RepeatPattern
from tambomq.cli.chasqui.add import pattern_of, repeat_options, retry_options, show_added
from tambomq.cli.chasqui.client import every_command, open_queue, queue_argument, require_queue
from tambomq.cli.chasqui.tables import emit_rows, is_tambo
from tambomq.cli.chasqui.values import missed_fires, moment, payload
from tambomq.cli.output import NothingThere, emit, emit_json, example
from tambomq.cli.times import utc

LIST_LIMIT: Final = 100


@click.group()
def repeatable() -> None:
    """List, add and remove repeatable jobs."""


@repeatable.command("list", epilog=example("chasqui repeatable list reports"))
@queue_argument
@click.option(
    "--limit",
    default=LIST_LIMIT,
    type=click.IntRange(min=0),
    metavar="COUNT",
    help=f"At most this many. [{LIST_LIMIT}]",
)
@every_command
def list_repeatable(queue: str, *, limit: int, as_json: bool) -> None:
    """List repeatable jobs, the next to fire first. Exit 3 when there is no such queue."""
    require_queue(queue)
    found = open_queue(queue).get_repeatable_jobs(limit)
    if as_json:
        emit_json([_object(meta) for meta in found])
        return
    fire = "next fire" if is_tambo() else "next fire (ms)"
    columns = (f"repeatable: {queue}", "job_name", "pattern", "tz", fire, "limit")
    emit_rows(columns, [_row(meta) for meta in found] or [("(empty)", *(None,) * 5)])


@repeatable.command(
    epilog=example(
        "chasqui repeatable add reports daily --cron '0 9 * * *' --tz Europe/Berlin",
        "chasqui repeatable add reports sync --every 5m --limit 12 --missed fire-once",
    )
)
@queue_argument
@click.argument("name")
@click.argument("data", required=False)
@repeat_options
@click.option(
    "--key", metavar="KEY", help="Its key; a job with the same key is replaced. [name and pattern]"
)
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="COUNT", help="Fire at most this often."
)
@click.option("--start", type=moment, metavar="TIME", help="Not before: 2030-01-31T09:00Z.")
@click.option("--end", type=moment, metavar="TIME", help="Not after.")
@click.option(
    "--missed",
    type=missed_fires,
    metavar="POLICY",
    help="For fires missed while no scheduler ran: skip, fire-once or fire-all:100. [skip]",
)
@retry_options
@every_command
def add(queue: str, name: str, data: str | None, *, as_json: bool, **given: Any) -> None:
    """Add a repeatable job called NAME and print its key; DATA is JSON, or - for standard input.

    A worker or `chasqui scheduler` must run for it to fire.
    """
    repeat = pattern_of(given["every"], given["cron"], given["tz"])
    if repeat is None:
        raise click.UsageError("no pattern: give --every or --cron")
    job = open_queue(queue).upsert_repeatable_job(
        name,
        payload(data),
        repeat=repeat,
        limit=given["limit"],
        start_after_ms=_epoch_ms(given["start"]),
        end_before_ms=_epoch_ms(given["end"]),
        attempts=given["attempts"],
        backoff=given["backoff"],
        job_id=given["key"],
        missed_fires=given["missed"],
    )
    show_added(queue, job, recurs=True, as_json=as_json)


@repeatable.command(epilog=example("chasqui repeatable remove reports daily::cron:0 9 * * *:UTC"))
@queue_argument
@click.argument("key")
@every_command
def remove(queue: str, key: str, *, as_json: bool) -> None:
    """Remove a repeatable job. Exit 3 when no job has this key."""
    removed = open_queue(queue).remove_repeatable_by_key(key)
    if as_json:
        emit_json({"queue": queue, "key": key, "removed": removed})
    else:
        emit("removed" if removed else "not found")
    if not removed:
        raise NothingThere("" if as_json else f"`chasqui repeatable list {queue}` lists the keys")


def _row(meta: RepeatableMeta) -> tuple[object, ...]:
    pattern, tz = _shown(meta.pattern)
    fire = utc(meta.next_fire_ms) if is_tambo() else meta.next_fire_ms
    return meta.key, meta.job_name, pattern, tz, fire, meta.limit


def _shown(pattern: RepeatPattern) -> tuple[str, str]:
    if pattern.kind == "every":
        return f"every {pattern.interval_ms}ms", "-"
    return pattern.expression or "", "UTC" if pattern.tz is None else pattern.tz


def _object(meta: RepeatableMeta) -> dict[str, object]:
    missed = meta.missed_fires
    return {
        "key": meta.key,
        "job_name": meta.job_name,
        "pattern": meta.pattern.to_dict(),
        "next_fire_ms": meta.next_fire_ms,
        "limit": meta.limit,
        "fired": meta.fired,
        "start_after_ms": meta.start_after_ms,
        "end_before_ms": meta.end_before_ms,
        "missed_fires": {"kind": "skip"} if missed is None else missed.to_dict(),
    }


def _epoch_ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
