"""``chasqui add``: add a job, delayed or repeatable if wanted, or many at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import click

from tambomq.chasqui.job import Job
from tambomq.chasqui.ops.add import MAX_STREAM_LEN
from tambomq.chasqui.repeat import RepeatPattern
from tambomq.cli.chasqui import bulk as chasqui_bulk
from tambomq.cli.chasqui.client import (
    InteractiveQueue,
    every_command,
    flags_in_faults,
    jobs,
    open_queue,
    queue_argument,
)
from tambomq.cli.chasqui.values import backoff, moment, payload
from tambomq.cli.durations import METAVAR, milliseconds
from tambomq.cli.input import size_of, standard_input
from tambomq.cli.output import Command, emit, emit_json, example
from tambomq.cli.redis_option import durable_option


def retry_options(command: Command) -> Command:
    """Give *command* ``--attempts`` and ``--backoff``."""
    for option in (
        click.option(
            "--backoff",
            type=backoff,
            metavar="BACKOFF",
            help="Between runs: 5s, exponential:1s, or exponential:1s:10m. [the worker's own]",
        ),
        click.option(
            "--attempts",
            type=click.IntRange(min=1),
            metavar="COUNT",
            help="Runs before it is dead. [the worker's own]",
        ),
    ):
        command = option(command)
    return command


def repeat_options(command: Command) -> Command:
    """Give *command* ``--every``, ``--cron`` and ``--tz``, for `pattern_of`."""
    for option in (
        click.option("--tz", metavar="ZONE", help="Of the cron expression: Europe/Berlin. [UTC]"),
        click.option("--cron", metavar="EXPRESSION", help="Repeat it: '0 9 * * MON-FRI'."),
        click.option(
            "--every",
            type=milliseconds,
            metavar=METAVAR,
            help="Repeat it: 90 (seconds), 500ms, 5m, 1h.",
        ),
    ):
        command = option(command)
    return command


def pattern_of(every: int | None, cron: str | None, tz: str | None) -> RepeatPattern | None:
    """Return when a job recurs; `None` if it does not. Raises `click.UsageError`."""
    if every is not None and cron is not None:
        raise click.UsageError("a repeatable job has --every or --cron, not both")
    if tz is not None and cron is None:
        raise click.UsageError("--tz goes with --cron")
    if cron is not None:
        return RepeatPattern.cron(cron, tz=tz)
    return None if every is None else RepeatPattern.every(every)


def how_options(command: Command) -> Command:
    """Add the options about the queue's limits, which `open_queue` takes."""
    for option in (
        click.option(
            "--max-stream-len",
            default=MAX_STREAM_LEN,
            type=click.IntRange(min=1),
            metavar="COUNT",
            help=f"Jobs that may wait or run at once. [{MAX_STREAM_LEN}]",
        ),
        click.option(
            "--overflow",
            type=click.Choice(("refuse", "trim")),
            default="refuse",
            help="Beyond that: refuse the add, or trim the oldest jobs. [refuse]",
        ),
        click.option(
            "--dialect",
            type=click.Choice(("auto", "page", "engine")),
            default="auto",
            help="Encoding of delayed jobs; auto: one that all users of the queue can read. [auto]",
        ),
    ):
        command = option(command)
    return command


@click.command(
    epilog=example(
        """chasqui add emails welcome '{"to": "ada@example.com"}'""",
        "chasqui add emails reminder --id reminder-42 --delay 2h",
        "chasqui add reports daily --cron '0 9 * * *' --tz Europe/Berlin",
        "chasqui add emails welcome --bulk < recipients.jsonl",
    )
)
@queue_argument
@click.argument("name", required=False)
@click.argument("data", required=False)
@click.option("--id", "job_id", metavar="ID", help="Its id, for `cancel` and `result`. [random]")
@click.option(
    "--once", is_flag=True, help="Add nothing if this id was added --once in the last day."
)
@click.option(
    "--delay",
    "delay_ms",
    type=milliseconds,
    metavar=METAVAR,
    help="Run it later: 90 (seconds), 500ms, 5m, 2h.",
)
@click.option(
    "--at", type=moment, metavar="TIME", help="Run it then: 2030-01-31T09:00+01:00. [UTC]"
)
@retry_options
@repeat_options
@click.option("--count", type=click.IntRange(min=1), metavar="COUNT", help="Add this many copies.")
@click.option("--bulk", is_flag=True, help="A job for each line of standard input.")
@how_options
@click.option("--journal", is_flag=True, help="Record it, with its data, in the queue's journal.")
@durable_option
@every_command
def add(queue: str, name: str | None, data: str | None, *, as_json: bool, **given: Any) -> None:
    """Add a job and print its id; or many, and how many.

    NAME selects the handler, DATA is the job's payload: JSON, or - to read it from standard
    input; null if left out.

    With --bulk each line is the data of a job called NAME. Without NAME it is an object with name,
    data and, optionally, job_id, delay_ms, attempts and backoff, which win over the options here.

    With --every or --cron the job recurs, under the key that is printed.
    """
    repeat = pattern_of(given["every"], given["cron"], given["tz"])
    _check(name, data, repeat, given)
    dedup = "strict" if given["once"] else "window"
    how = {key: given[key] for key in ("max_stream_len", "overflow", "dialect", "journal")}
    if given["durable"] is not None:
        how["durable"] = given["durable"]
    client = open_queue(queue, dedup=dedup, **how)
    options = _options(given)
    if given["bulk"] or given["count"]:
        _show_count(queue, _add_many(client, name, data, options, given), as_json=as_json)
        return
    with flags_in_faults():
        is_unique = "job_id" in options and repeat is None
        add_it = client.add_unique if is_unique else partial(client.add, repeat=repeat)
        job = add_it(name or "", payload(data), **options)
    show_added(queue, job, recurs=repeat is not None, as_json=as_json)


def show_added(queue: str, job: Job, *, recurs: bool, as_json: bool) -> None:
    """Print the id of a job, or the key of one that recurs."""
    if as_json:
        shown = {"queue": queue, "key" if recurs else "id": job.id, "name": job.name}
        emit_json(shown if job.added is None else {**shown, "added": job.added})
    else:
        emit(job.id)


def _check(
    name: str | None, data: str | None, repeat: RepeatPattern | None, given: Mapping[str, Any]
) -> None:
    """Raise `click.UsageError` for options that exclude each other."""
    many = given["bulk"] or given["count"]
    later = given["delay_ms"] is not None or given["at"] is not None
    for wrong, text in (
        (name is None and not given["bulk"], "the job has no name: give NAME after QUEUE"),
        (given["bulk"] and data not in (None, "-"), "--bulk reads the data of its jobs"),
        (given["bulk"] and given["count"], "--bulk and --count do not go together"),
        (many and given["job_id"], "--id is for one job"),
        (many and repeat, "--every and --cron are for one job"),
        (later and repeat, "a repeatable job has no --delay and no --at"),
        (given["delay_ms"] is not None and given["at"], "--delay or --at, not both"),
        (given["once"] and not (given["job_id"] or given["bulk"]), "--once goes with --id"),
        (given["journal"] and repeat, "--journal: the scheduler records repeatable jobs"),
        (given["once"] and repeat, "--once: a repeatable job exists once in any case"),
    ):
        if wrong:
            raise click.UsageError(text)


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as `BlockingQueue.add` takes them."""
    at: datetime | None = given["at"]
    options = {
        "job_id": given["job_id"],
        "delay_ms": given["delay_ms"] if at is None else at,
        "attempts": given["attempts"],
        "backoff": given["backoff"],
    }
    return {key: value for key, value in options.items() if value is not None}


def _add_many(
    client: InteractiveQueue,
    name: str | None,
    data: str | None,
    options: dict[str, Any],
    given: Any,
) -> int:
    if given["bulk"]:
        size = size_of(standard_input())
        return chasqui_bulk.add_all(client, chasqui_bulk.read_lines(name, options), size)
    job = {"name": name, "data": payload(data), **options}
    return chasqui_bulk.add_all(client, chasqui_bulk.copies(job, given["count"]), given["count"])


def _show_count(queue: str, added: int, *, as_json: bool) -> None:
    if as_json:
        emit_json({"queue": queue, "added": added})
    else:
        emit(f"added {jobs(added)} to the queue {queue}")
