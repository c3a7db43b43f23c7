"""``chasqui job`` and ``chasqui workers``: single jobs, and which worker holds which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from tambomq.chasqui.job_info import JobInfo, WorkerInfo
from tambomq.cli.chasqui.client import (
    confirm,
    every_command,
    flags_in_faults,
    group_option,
    jobs,
    open_queue,
    queue_argument,
)
from tambomq.cli.chasqui.tables import emit_rows
from tambomq.cli.chasqui.values import with_text_keys
from tambomq.cli.output import NothingThere, emit, emit_json, example, yes_option
from tambomq.cli.times import utc

HELD_LIMIT = 20


@click.group()
def job() -> None:
    """Show one job, delete it, or retry it."""


def _ids(command: Any) -> Any:
    return click.argument("ids", nargs=-1, required=True, metavar="ID...")(command)


@job.command(epilog=example("chasqui job show emails welcome-42"))
@queue_argument
@click.argument("id")
@group_option
@every_command
def show(queue: str, id: str, *, group: str, as_json: bool) -> None:
    """Show the state of a job and its details.

    Its state is delayed, waiting, active, completed or dead. The queue is read until the job is
    found, on the server. Exit 3 when it is unknown.
    """
    found = open_queue(queue, group=group).get_job(id)
    if found is None:
        raise NothingThere(f"job {id} is unknown on the queue {queue}")
    if as_json:
        emit_json({"queue": queue, **_fields(found)})
        return
    rows = [(name, value) for name, value in _fields(found).items() if value is not None]
    emit_rows((f"job: {queue}", "value"), [(name, _shown(name, value)) for name, value in rows])
    if found.traceback:
        emit("\n" + found.traceback)


@job.command(epilog=example("chasqui job remove emails welcome-42"))
@queue_argument
@_ids
@yes_option
@every_command
def remove(queue: str, ids: Sequence[str], *, yes: bool, as_json: bool) -> None:
    """Delete waiting, delayed or dead jobs; an active one is refused.

    Exit 3 when one was not there; the others are deleted all the same.
    """
    confirm(f"Delete {jobs(len(ids))} of queue {queue}?", yes=yes)
    client = open_queue(queue)
    _show_done(
        queue, {id: client.remove_job(id) for id in ids}, "deleted", "not there", as_json=as_json
    )


@job.command(epilog=example("chasqui job retry emails welcome-42"))
@queue_argument
@_ids
@every_command
def retry(queue: str, ids: Sequence[str], *, as_json: bool) -> None:
    """Retry dead jobs, with all their attempts, and run delayed ones at once.

    Exit 3 when one is neither; the others run all the same.
    """
    client = open_queue(queue)
    with flags_in_faults():
        done = {id: client.retry_job(id) for id in ids}
    _show_done(queue, done, "retried", "neither dead nor delayed", as_json=as_json)


@click.command(epilog=example("chasqui workers emails", "chasqui workers emails --json"))
@queue_argument
@click.option(
    "--limit",
    default=HELD_LIMIT,
    type=click.IntRange(min=0),
    metavar="COUNT",
    help=f"At most this many jobs of each. [{HELD_LIMIT}]",
)
@group_option
@every_command
def workers(queue: str, *, limit: int, group: str, as_json: bool) -> None:
    """List the workers of a queue, and the jobs that each has.

    A worker has the jobs that run, and those that it has read ahead. `idle` is the time since it
    last read. Exit 3 when there are none.
    """
    found = open_queue(queue, group=group).get_workers(limit)
    if as_json:
        emit_json({"queue": queue, "group": group, "workers": [*map(msgspec.to_builtins, found)]})
    elif found:
        columns = (f"workers: {queue}", "idle (ms)", "held", "job", "name", "deliveries")
        emit_rows(columns, [row for worker in found for row in _rows(worker)])
    if not found:
        raise NothingThere("" if as_json else f"the queue {queue} has no workers in {group!r}")


def _rows(worker: WorkerInfo) -> list[tuple[object, ...]]:
    head = (worker.name, worker.idle_ms, worker.held)
    held: list[tuple[object, ...]] = [(each.id, each.name, each.deliveries) for each in worker.jobs]
    first, *others = held or [(None, None, None)]
    return [(*head, *first), *((None, None, None, *each) for each in others)]


def _fields(found: JobInfo) -> dict[str, Any]:
    fields = {name: getattr(found, name) for name in found.__struct_fields__}
    return fields | {name: with_text_keys(fields[name]) for name in ("data", "result")}


def _shown(name: str, value: Any) -> object:
    if name.endswith("_at_ms"):
        return utc(value)
    return "below" if name == "traceback" else value


def _show_done(
    queue: str, done: dict[str, bool], verb: str, why_not: str, *, as_json: bool
) -> None:
    some = [id for id, was_done in done.items() if was_done]
    others = [id for id, was_done in done.items() if not was_done]
    if as_json:
        emit_json({"queue": queue, verb: some, "missing": others})
    elif some:
        emit("\n".join(f"{verb} {id}" for id in some))
    if others:
        text = f"{why_not} on the queue {queue}: {', '.join(others)}"
        raise NothingThere("" if as_json else text)
