"""``tambo pipeline migrate``: all that is in a queue goes to another."""

from __future__ import annotations

from typing import Any

import click

from tambomq.cli.long_input import progress
from tambomq.cli.output import NothingThere, emit, emit_json, example
from tambomq.cli.pipeline_client import (
    PATIENCE_S,
    counted,
    every_command,
    journal_option,
    open_store,
    redis_url,
)
from tambomq.pipeline import pace
from tambomq.pipeline.address import address
from tambomq.pipeline.bodies import KINDS
from tambomq.pipeline.migrate import Place, Report, end_of, migrate, move_name
from tambomq.pipeline.moving import Count
from tambomq.rsmq.keys import NAMESPACE
from tambomq.store.sync import Store


@click.command(
    name="migrate",
    epilog=example(
        "tambo pipeline migrate rsmq:orders chasqui:orders --dry-run",
        "tambo pipeline migrate rsmq:orders chasqui:orders --name order --payload json",
        "tambo pipeline migrate gomq:orders gomq:orders --to-url redis://10.0.0.2:6379",
    ),
)
@click.argument("source")
@click.argument("target")
@click.option("--to-url", metavar="URL", help="The server of TARGET. [that of SOURCE]")
@click.option("--ns", default=NAMESPACE, metavar="NAME", help=f"RSMQ's namespace. [{NAMESPACE}]")
@click.option("--to-ns", metavar="NAME", help="The namespace of TARGET. [that of SOURCE]")
@click.option("--wait", default="10s", metavar="TIME", help="Wait so long for what is held. [10s]")
@click.option("--name", default="", metavar="NAME", help="What new ChasquiMQ jobs are called.")
@click.option(
    "--payload",
    "kind",
    type=click.Choice(KINDS),
    default=KINDS[0],
    help="What bytes become as a job's data: text, the value whose JSON they are, or MessagePack.",
)
@journal_option
@click.option("--dry-run", is_flag=True, help="Tell what would be moved, and move nothing.")
@every_command
def migrate_command(source: str, target: str, *, as_json: bool, **given: Any) -> None:
    """Move all that is in SOURCE to TARGET: rsmq:…, chasqui:… or gomq:…, in its order.

    Delays go on. What somebody has received is waited for, then left and told. Interrupted, the
    same command goes on: nothing is lost and nothing comes twice.
    """
    here = Place(address(source), redis_url(), given["ns"])
    there = Place(address(target), given["to_url"] or here.url, given["to_ns"] or here.ns)
    way, store = move_name(here, there), open_store()
    begin = end_of(store, here)
    count = begin.count()
    if given["dry_run"]:
        _show_plan(here, there, count, as_json=as_json)
        return
    other = Store(there.url, patience_s=PATIENCE_S)
    click.get_current_context().call_on_close(other.close)
    how = {key: given[key] for key in ("kind", "name", "journal")}
    end = end_of(other, there, **how)
    total = count.waiting + count.delayed
    with progress("moving", "messages", total, shown=not as_json) as tick:
        done = migrate(
            begin,
            end,
            way,
            wait_s=pace.seconds(given["wait"]),
            tick=lambda moved: tick(moved, min(moved, total)),
        )
    _show(here, there, done, as_json=as_json)


def _show_plan(here: Place, there: Place, count: Count, *, as_json: bool) -> None:
    if as_json:
        counts = {"waiting": count.waiting, "delayed": count.delayed, "held": count.in_flight}
        emit_json({"from": str(here.address), "to": str(there.address), **counts})
        return
    waiting = counted(count.waiting, "that waits", "that wait")
    delayed = counted(count.delayed, "that is delayed", "that are delayed")
    emit(f"would move {waiting} and {delayed} from {here.address} to {there.address}")
    if count.in_flight:
        held = counted(count.in_flight, "is", "are")
        emit(f"{held} in somebody's hands, and would be waited for")
    if count.delayed and there.address.protocol == "gomq":
        emit("GOMQ knows no delays: those that are delayed would stay")


def _show(here: Place, there: Place, done: Report, *, as_json: bool) -> None:
    if as_json:
        emit_json(
            {
                "from": str(here.address),
                "to": str(there.address),
                "moved": done.moved,
                "total": done.gone.count,
                "digest": f"{done.come.sum:012x}",
                "left": {"held": done.left.in_flight, "delayed": done.left.delayed},
                "made": done.made,
            }
        )
        return
    if not done.gone.count and not done.left.in_flight and not done.left.delayed:
        raise NothingThere(f"{here.address} is empty: nothing was moved")
    emit(f"moved {counted(done.moved, 'message')} from {here.address} to {there.address}")
    if done.made:
        emit(f"{there.address} was made")
    gone, come = (counted(each.count, "has", "have") for each in (done.gone, done.come))
    told = f"{gone} left and {come} come since it began"
    emit(f"{told}, with the same digest {done.come.sum:012x}")
    if done.left.in_flight:
        stay = "stays: somebody has it in hand", "stay: somebody has them in hand"
        emit(f"{counted(done.left.in_flight, *stay)}; run it again later")
    if done.left.delayed:
        stay = "stays: it is delayed", "stay: they are delayed"
        told = f"{there.address.protocol} knows no delays"
        emit(f"{counted(done.left.delayed, *stay)}, and {told}")
