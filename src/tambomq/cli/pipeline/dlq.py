"""``tambo pipeline dlq``: dead letters counted by error, their redrives, and undoing these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from tambomq.bulk.histogram import DeadLetterGroup, DeadLetterInfo, histogram
from tambomq.bulk.redrives import Redrive
from tambomq.cli.output import NothingThere, emit, emit_json, emit_table, example
from tambomq.cli.pipeline.client import counted, every_command, open_store, redis_url
from tambomq.cli.pipeline.redrive import redrive
from tambomq.cli.times import utc
from tambomq.errors import QueueError, WrongType
from tambomq.pipeline.address import address, numbered
from tambomq.pipeline.dlq.queues import PROTOCOLS, DeadLetterQueue, DeadLetterQueues
from tambomq.rsmq.keys import NAMESPACE
from tambomq.text import spelled_out

SHOWN: Final = 40
_DEFAULT: Final = "show"


class _Dlq(click.Group):
    """A group whose default command is ``show``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take anything but a command for an argument of ``show``."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_Dlq,
    epilog=example(
        "tambo pipeline dlq",
        "tambo pipeline dlq chasqui:orders --json",
        "tambo pipeline dlq redrive chasqui:orders --where \"name = 'email'\" --canary 1%",
        "tambo pipeline dlq redrives",
        "tambo pipeline dlq undo chasqui:orders/3kd81mzaQ0",
    ),
)
def dlq() -> None:
    """Count dead letters by error, redrive them to their queues, and undo that."""


dlq.add_command(redrive)


def _ns_option(command: Any) -> Any:
    return click.option(
        "--ns", default=NAMESPACE, metavar="NAME", help=f"RSMQ's namespace. [{NAMESPACE}]"
    )(command)


@dlq.command(name=_DEFAULT)
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@_ns_option
@click.option("--dead", default="", metavar="NAME", help="RSMQ's dead-letter queue. [<queue>-dead]")
@every_command
def show(queues: tuple[str, ...], *, ns: str, dead: str, as_json: bool) -> None:
    """Count dead letters by reason, name and what their errors have in common.

    QUEUE is chasqui:orders or rsmq:orders; without, all of both protocols.
    """
    every = DeadLetterQueues(open_store(), redis_url(), ns=ns, dead=dead)
    found = [every.of(address(each, PROTOCOLS)) for each in queues] or every.all()
    kinds = histogram(_letters(found, are_named=bool(queues)))
    if as_json:
        emit_json({"letters": sum(each.count for each in kinds), "kinds": list(map(_kind, kinds))})
        return
    if not kinds:
        raise NothingThere("no dead letters")
    columns = ("queue", "count", "reason", "name", "error", "first", "last", "sample")
    emit_table(columns, [_row(kind) for kind in kinds[:SHOWN]])
    if len(kinds) > SHOWN:
        emit(f"… and {counted(len(kinds) - SHOWN, 'more kind')}: --json has all.")


@dlq.command()
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@_ns_option
@every_command
def redrives(queues: tuple[str, ...], *, ns: str, as_json: bool) -> None:
    """List the redrives of the last week, and how far each has come."""
    every = DeadLetterQueues(open_store(), redis_url(), ns=ns)
    found = [every.of(address(each, PROTOCOLS)) for each in queues] or every.all()
    started = list(_redrives(found, are_named=bool(queues)))
    if as_json:
        emit_json([_redrive(dead_letters, each) for dead_letters, each in started])
        return
    if not started:
        raise NothingThere("no redrives")
    columns = ("id", "state", "begun", "selected", "moved", "put back", "where")
    rows = [
        (
            *(f"{dead_letters.address}/{each.id}", each.state, utc(each.begun_ms)),
            *(each.selected, each.moved, each.undone, each.where),
        )
        for dead_letters, each in started
    ]
    emit_table(columns, rows)


@dlq.command()
@click.argument("id")
@_ns_option
@click.option(
    "--journal",
    is_flag=True,
    help="Record in RSMQ's journal what is dead again. [ChasquiMQ has events]",
)
@every_command
def undo(id: str, *, ns: str, journal: bool, as_json: bool) -> None:
    """Move what a redrive moved, and no worker has taken yet, back to the dead letters.

    ID is the one that redrive and redrives print: chasqui:orders/<id>.
    """
    queue, name = numbered(id, PROTOCOLS)
    dead_letters = DeadLetterQueues(open_store(), redis_url(), ns=ns, journal=journal).of(queue)
    redrive = next((each for each in dead_letters.known() if each.id == name), None)
    if redrive is None:
        raise QueueError(queue.queue, f"{queue} has no redrive {name!r}: see `dlq redrives`")
    done = dead_letters.undo(redrive)
    if as_json:
        counts = {"put_back": done.back, "running": done.running, "consumed": done.consumed}
        emit_json({"id": id, **counts})
        return
    running, consumed = (counted(count, "is", "are") for count in (done.running, done.consumed))
    emit(f"{done.back} put back, {running} running, {consumed} consumed")


def _letters(found: Iterable[DeadLetterQueue], *, are_named: bool) -> Iterator[DeadLetterInfo]:
    for dead_letters in found:
        with _left_out(dead_letters, unless=are_named):
            yield from dead_letters.letters()


def _redrives(
    found: Iterable[DeadLetterQueue], *, are_named: bool
) -> Iterator[tuple[DeadLetterQueue, Redrive]]:
    for dead_letters in found:
        with _left_out(dead_letters, unless=are_named):
            yield from ((dead_letters, each) for each in dead_letters.known())


@contextmanager
def _left_out(dead_letters: DeadLetterQueue, *, unless: bool) -> Iterator[None]:
    """Warn about a queue whose keys are of another type, and go on with the next."""
    try:
        yield
    except WrongType as error:
        if unless:
            raise
        click.echo(spelled_out(f"tambo: {dead_letters.address} is left out: {error}"), err=True)


def _row(kind: DeadLetterGroup) -> tuple[object, ...]:
    return (
        *(kind.queue, kind.count, kind.reason or None, kind.name or None, kind.shape or None),
        *(utc(kind.first_ms), utc(kind.last_ms), kind.samples[0].id),
    )


def _kind(kind: DeadLetterGroup) -> dict[str, Any]:
    return {
        "queue": kind.queue,
        "count": kind.count,
        "reason": kind.reason,
        "name": kind.name,
        "error": kind.shape,
        "first_seen": utc(kind.first_ms),
        "last_seen": utc(kind.last_ms),
        "samples": [
            {
                "id": each.id,
                "at": utc(each.at_ms),
                "detail": each.detail,
                "traceback": each.traceback or None,
            }
            for each in kind.samples
        ],
    }


def _redrive(dead_letters: DeadLetterQueue, redrive: Redrive) -> dict[str, Any]:
    return {
        "id": f"{dead_letters.address}/{redrive.id}",
        "state": redrive.state,
        "begun": utc(redrive.begun_ms),
        "where": redrive.where,
        "set": redrive.rewrite,
        "attempts": redrive.attempts,
        "selected": redrive.selected,
        "canary": redrive.canary,
        "moved": redrive.moved,
        "put_back": redrive.undone,
    }
