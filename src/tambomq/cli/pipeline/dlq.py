"""``tambo pipeline dlq``: what died of what, and the way back into the queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from tambomq.cli.output import NothingThere, emit, emit_json, emit_table, example
from tambomq.cli.pipeline_client import counted, every_command, open_store, redis_url
from tambomq.cli.pipeline_redrive import redrive
from tambomq.cli.times import utc
from tambomq.errors import QueueError, WrongType
from tambomq.pipeline.address import address, numbered
from tambomq.pipeline.dead import Kind, Letter, histogram
from tambomq.pipeline.graves import PROTOCOLS, Grave, Yard
from tambomq.rsmq.keys import NAMESPACE
from tambomq.store.redrives import Redrive
from tambomq.text import spelled_out

SHOWN: Final = 40
_DEFAULT: Final = "show"


class _Dlq(click.Group):
    """A group that shows what there is if it is not told a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take whatever is no command for an argument of the usual one."""
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
    """Count dead letters by what they died of; let them be delivered again, and regret it."""


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
    yard = Yard(open_store(), redis_url(), ns=ns, dead=dead)
    graves = [yard.grave(address(each, PROTOCOLS)) for each in queues] or yard.graves()
    kinds = histogram(_letters(graves, are_named=bool(queues)))
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
    yard = Yard(open_store(), redis_url(), ns=ns)
    graves = [yard.grave(address(each, PROTOCOLS)) for each in queues] or yard.graves()
    found = list(_redrives(graves, are_named=bool(queues)))
    if as_json:
        emit_json([_redrive(grave, each) for grave, each in found])
        return
    if not found:
        raise NothingThere("no redrives")
    columns = ("id", "state", "begun", "selected", "moved", "put back", "where")
    rows = [
        (
            *(f"{grave.address}/{each.id}", each.state, utc(each.begun_ms)),
            *(each.selected, each.moved, each.undone, each.where),
        )
        for grave, each in found
    ]
    emit_table(columns, rows)


@dlq.command()
@click.argument("id")
@_ns_option
@click.option(
    "--journal", is_flag=True, help="Tell RSMQ's journal who is dead again. [ChasquiMQ's events do]"
)
@every_command
def undo(id: str, *, ns: str, journal: bool, as_json: bool) -> None:
    """Put back what a redrive moved and nobody has taken yet, with its reason and its bytes.

    ID is what redrive and redrives tell: chasqui:orders/<id>.
    """
    queue, name = numbered(id, PROTOCOLS)
    grave = Yard(open_store(), redis_url(), ns=ns, journal=journal).grave(queue)
    told = next((each for each in grave.known() if each.id == name), None)
    if told is None:
        raise QueueError(queue.queue, f"{queue} knows of no redrive {name!r}: see dlq redrives")
    done = grave.undo(told)
    if as_json:
        counts = {"put_back": done.back, "running": done.running, "consumed": done.consumed}
        emit_json({"id": id, **counts})
        return
    running, gone = (counted(count, "is", "are") for count in (done.running, done.consumed))
    emit(f"{done.back} put back, {running} in workers' hands, {gone} gone")


def _letters(graves: Iterable[Grave], *, are_named: bool) -> Iterator[Letter]:
    for grave in graves:
        with _left_out(grave, unless=are_named):
            yield from grave.letters()


def _redrives(graves: Iterable[Grave], *, are_named: bool) -> Iterator[tuple[Grave, Redrive]]:
    for grave in graves:
        with _left_out(grave, unless=are_named):
            yield from ((grave, each) for each in grave.known())


@contextmanager
def _left_out(grave: Grave, *, unless: bool) -> Iterator[None]:
    """Go on with the next queue after one whose keys somebody else uses, and say so."""
    try:
        yield
    except WrongType as error:
        if unless:
            raise
        click.echo(spelled_out(f"tambo: {grave.address} is left out: {error}"), err=True)


def _row(kind: Kind) -> tuple[object, ...]:
    return (
        *(kind.queue, kind.count, kind.reason or None, kind.name or None, kind.shape or None),
        *(utc(kind.first_ms), utc(kind.last_ms), kind.samples[0].id),
    )


def _kind(kind: Kind) -> dict[str, Any]:
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


def _redrive(grave: Grave, told: Redrive) -> dict[str, Any]:
    return {
        "id": f"{grave.address}/{told.id}",
        "state": told.state,
        "begun": utc(told.begun_ms),
        "where": told.where,
        "set": told.rewrite,
        "attempts": told.attempts,
        "selected": told.selected,
        "canary": told.canary,
        "moved": told.moved,
        "put_back": told.undone,
    }
