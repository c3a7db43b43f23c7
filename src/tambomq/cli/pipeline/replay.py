"""``tambo pipeline replay``: sends recorded messages of a lake to a queue again."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click

from tambomq.cli.input import progress
from tambomq.cli.output import NothingThere, emit, emit_json, example
from tambomq.cli.pipeline.client import (
    counted,
    every_command,
    journal_option,
    open_store,
    redis_url,
)
from tambomq.cli.pipeline.spark import lake_option, master_option, open_lake, open_spark
from tambomq.ids import letters
from tambomq.pipeline.address import address
from tambomq.pipeline.transfer import pace
from tambomq.pipeline.transfer.bodies import KINDS
from tambomq.pipeline.transfer.migrate import QueueLocation, endpoint_of
from tambomq.rsmq.keys import NAMESPACE

_ID_LETTERS: Final = 10
_WHAT: Final = ("sent", "dead", "all")


@click.command(
    name="replay",
    epilog=example(
        "tambo pipeline replay --to chasqui:trial --speed 2x \\",
        "  --where \"queue = 'orders' AND at >= '2026-01-01 10:00' AND at < '2026-01-01 11:00'\"",
    ),
)
@click.option(
    "--to", "target", required=True, metavar="QUEUE", help="Where to: rsmq:…, chasqui:…, gomq:…"
)
@partial(lake_option, name="--from")
@click.option("--where", default="", metavar="SQL", help="Which rows of bronze. [all]")
@click.option(
    "--what",
    type=click.Choice(_WHAT),
    default=_WHAT[0],
    help="What was sent, what died, or whatever has a body. [sent]",
)
@click.option("--speed", default="max", metavar="N", help="1x as it was, 2x, max. [max]")
@click.option("--id", metavar="NAME", help="A name for this replay, or the one to go on with.")
@click.option("--ns", default=NAMESPACE, metavar="NAME", help=f"RSMQ's namespace. [{NAMESPACE}]")
@click.option("--name", default="", metavar="NAME", help="The dispatch name of new ChasquiMQ jobs.")
@click.option(
    "--payload", "kind", type=click.Choice(KINDS), default=KINDS[0], help="As in migrate."
)
@journal_option
@click.option("--dry-run", is_flag=True, help="Show how much would be sent, and send nothing.")
@master_option
@every_command
def replay_command(target: str, *, as_json: bool, **given: Any) -> None:
    """Send the messages of a lake again, in their order, under new ids.

    After an interrupt the same command with the printed --id resumes: nothing is sent twice.
    """
    from tambomq.pipeline.transfer.replay import check_id, replay, rows

    there = QueueLocation(address(target), redis_url(), given["ns"])
    speed, id = pace.speed(given["speed"]), check_id(given["id"] or letters(_ID_LETTERS))
    how = {key: given[key] for key in ("kind", "name", "journal")}
    end = endpoint_of(open_store(), there, **how)
    lake = open_lake(given["lake"])
    spark = open_spark("tambo pipeline replay", given["master"])
    found = rows(lake.read(spark, "bronze"), given["where"], given["what"])
    if given["dry_run"]:
        _show_plan(there, sum(1 for _ in found), as_json=as_json)
        return
    # An interrupted user needs the id to resume.
    click.echo(f"replay {id}", err=True)
    with progress("sending", "messages", None, shown=not as_json) as tick:
        done = replay(found, end, id, speed=speed, tick=lambda sent: tick(sent, sent))
    if not done.sent + done.before:
        raise NothingThere(_nothing(given["where"]))
    if as_json:
        counts = {"sent": done.sent, "sent_before": done.before}
        emit_json({"id": id, "to": target, **counts, "origins": done.origins or None})
        return
    emit(f"sent {counted(done.sent, 'message')} to {there.address}")
    if done.before:
        emit(f"{counted(done.before, 'was', 'were')} sent before")
    emit(f"old ids: {done.origins or 'each new id begins with the old one'}")


def _show_plan(there: QueueLocation, count: int, *, as_json: bool) -> None:
    if as_json:
        emit_json({"to": str(there.address), "rows": count})
    else:
        emit(f"would send {counted(count, 'message')} to {there.address}")


def _nothing(condition: str) -> str:
    chosen = f" that {condition} is true of" if condition else ""
    return f"the lake has no bodies{chosen}: nothing was sent"
