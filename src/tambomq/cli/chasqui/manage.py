"""``chasqui pause``, ``resume``, ``cancel``, ``drain``, ``clean``, ``obliterate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from tambomq.chasqui.ops.admin import STATES
from tambomq.cli.chasqui.client import (
    confirm,
    confirm_name,
    every_command,
    flags_in_faults,
    group_option,
    jobs,
    open_queue,
    queue_argument,
)
from tambomq.cli.durations import METAVAR, milliseconds
from tambomq.cli.output import NothingThere, emit, emit_json, example, yes_option
from tambomq.errors import QueueBusy

CLEAN_LIMIT: Final = 1000


@click.command(epilog=example("chasqui pause emails"))
@queue_argument
@every_command
def pause(queue: str, *, as_json: bool) -> None:
    """Pause a queue: workers start no job until it is resumed.

    Jobs that run go on, and jobs can be added. It stays paused when servers and workers restart.
    """
    open_queue(queue).pause()
    if as_json:
        emit_json({"queue": queue, "paused": True})
    else:
        emit(f"paused the queue {queue}; `chasqui resume {queue}` resumes it")


@click.command(epilog=example("chasqui resume emails"))
@queue_argument
@every_command
def resume(queue: str, *, as_json: bool) -> None:
    """Resume a paused queue."""
    was_paused = open_queue(queue).resume()
    if as_json:
        emit_json({"queue": queue, "paused": False, "was_paused": was_paused})
    else:
        emit(f"resumed the queue {queue}" if was_paused else f"the queue {queue} was not paused")


@click.command(epilog=example("chasqui cancel emails welcome-42"))
@queue_argument
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@every_command
def cancel(queue: str, ids: Sequence[str], *, as_json: bool) -> None:
    """Cancel delayed jobs that are not due yet.

    IDs are those the jobs were added with. Exit 3 when one was not there; the others are
    cancelled all the same.
    """
    done = open_queue(queue).cancel_delayed_bulk(ids)
    cancelled = [id for id, there in zip(ids, done, strict=True) if there]
    missing = [id for id, there in zip(ids, done, strict=True) if not there]
    if as_json:
        emit_json({"queue": queue, "cancelled": cancelled, "missing": missing})
    elif cancelled:
        emit("\n".join(f"cancelled {id}" for id in cancelled))
    if missing:
        text = f"not delayed under this id on the queue {queue}: {', '.join(missing)}"
        raise NothingThere("" if as_json else text)


@click.command(epilog=example("chasqui drain emails", "chasqui drain emails --delayed --yes"))
@queue_argument
@click.option("--delayed", is_flag=True, help="Also those that are delayed.")
@yes_option
@group_option
@every_command
def drain(queue: str, *, delayed: bool, yes: bool, group: str, as_json: bool) -> None:
    """Delete the jobs that wait for a worker; those that run go on."""
    client = open_queue(queue, group=group)
    if not yes:
        found = client.get_job_counts()
        count = found.waiting + (found.delayed if delayed else 0)
        which = "waiting or delayed" if delayed else "waiting"
        confirm(f"Delete {jobs(count, which)} of queue {queue}?", yes=yes)
    _show_deleted(queue, client.drain(delayed=delayed), as_json=as_json)


@click.command(
    epilog=example(
        "chasqui clean emails --state dlq --older-than 7d",
        "chasqui clean emails --state waiting --older-than 1h --limit 100 --yes",
    )
)
@queue_argument
@click.option(
    "--state",
    type=click.Choice(STATES),
    default=STATES[0],
    help=f"Which jobs: dead, waiting or delayed ones. [{STATES[0]}]",
)
@click.option(
    "--older-than",
    "grace_ms",
    type=milliseconds,
    default="0",
    metavar=METAVAR,
    help="Only jobs older than this: 90 (seconds), 5m, 2h, 7d. [0]",
)
@click.option(
    "--limit",
    default=CLEAN_LIMIT,
    type=click.IntRange(min=0),
    metavar="COUNT",
    help=f"At most this many. [{CLEAN_LIMIT}]",
)
@yes_option
@group_option
@every_command
def clean(
    queue: str, *, state: str, grace_ms: int, limit: int, yes: bool, group: str, as_json: bool
) -> None:
    """Delete old jobs of one state.

    The age of a dead letter counts from its dead-lettering, that of a delayed job from its add.
    """
    which = {"dlq": "dead letters", "waiting": "waiting jobs", "delayed": "delayed jobs"}[state]
    confirm(f"Delete up to {limit} {which} of queue {queue}?", yes=yes)
    client = open_queue(queue, group=group)
    _show_deleted(queue, client.clean(grace_ms, limit=limit, state=state), as_json=as_json)


@click.command(epilog=example("chasqui obliterate emails", "chasqui obliterate emails --yes"))
@queue_argument
@click.option("--force", is_flag=True, help="Even while jobs are running.")
@yes_option
@group_option
@every_command
def obliterate(queue: str, *, force: bool, yes: bool, group: str, as_json: bool) -> None:
    """Delete a queue and everything about it.

    Jobs, dead letters, repeat specs, results and events are deleted for good. Refused while jobs
    run, unless --force. Exit 3 when there is nothing of this name.
    """
    client = open_queue(queue, group=group)
    with flags_in_faults():
        if not yes:
            found = client.get_job_counts()
            if found.active and not force:
                raise QueueBusy(queue, found.active)
            total = found.waiting + found.active + found.delayed + found.dead
            question = f"This deletes the queue {queue} with {jobs(total)}. Type its name to go on:"
            confirm_name(question, queue, yes=yes)
        deleted_keys = client.obliterate(force=force)
    if as_json:
        emit_json({"queue": queue, "deleted_keys": deleted_keys})
    elif deleted_keys:
        emit(f"deleted the queue {queue} ({deleted_keys} keys)")
    if not deleted_keys:
        raise NothingThere("" if as_json else f"there is no queue {queue}; see `chasqui queues`")


def _show_deleted(queue: str, count: int, *, as_json: bool) -> None:
    if as_json:
        emit_json({"queue": queue, "deleted": count})
    else:
        emit(f"deleted {jobs(count)} of the queue {queue}")
