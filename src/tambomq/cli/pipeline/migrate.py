"""``tambo pipeline migrate``: moves all messages of a queue to another."""

from __future__ import annotations

from typing import Any

import click

from tambomq.cli.durations import METAVAR, seconds
from tambomq.cli.input import progress
from tambomq.cli.output import NothingThere, emit, emit_json, example
from tambomq.cli.pipeline.client import (
    PATIENCE_S,
    counted,
    every_command,
    journal_option,
    open_store,
    redis_url,
)
from tambomq.pipeline.address import address
from tambomq.pipeline.transfer.bodies import KINDS
from tambomq.pipeline.transfer.endpoints import QueueCounts
from tambomq.pipeline.transfer.migrate import (
    MigrationReport,
    QueueLocation,
    endpoint_of,
    migrate,
    move_name,
)
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
@click.option(
    "--wait",
    type=seconds,
    default="10s",
    metavar=METAVAR,
    help="Wait so long for what is in flight: 90 (seconds), 5m. [10s]",
)
@click.option("--name", default="", metavar="NAME", help="The dispatch name of new ChasquiMQ jobs.")
@click.option(
    "--payload",
    "kind",
    type=click.Choice(KINDS),
    default=KINDS[0],
    help="What bytes become as a job's data: text, the value whose JSON they are, or MessagePack.",
)
@journal_option
@click.option("--dry-run", is_flag=True, help="Show what would be moved, and move nothing.")
@every_command
def migrate_command(source: str, target: str, *, as_json: bool, **given: Any) -> None:
    """Move all that is in SOURCE to TARGET: rsmq:…, chasqui:… or gomq:…, in its order.

    Delays are kept. It waits for messages in flight; those that stay in flight are reported.
    After an interrupt the same command resumes: nothing is lost or moved twice.
    """
    from_queue = QueueLocation(address(source), redis_url(), given["ns"])
    to_queue = QueueLocation(
        address(target), given["to_url"] or from_queue.url, given["to_ns"] or from_queue.ns
    )
    move, store = move_name(from_queue, to_queue), open_store()
    endpoint_from = endpoint_of(store, from_queue)
    count = endpoint_from.count()
    if given["dry_run"]:
        _show_plan(from_queue, to_queue, count, as_json=as_json)
        return
    other = Store(to_queue.url, patience_s=PATIENCE_S)
    click.get_current_context().call_on_close(other.close)
    how = {key: given[key] for key in ("kind", "name", "journal")}
    endpoint_to = endpoint_of(other, to_queue, **how)
    total = count.waiting + count.delayed
    with progress("moving", "messages", total, shown=not as_json) as tick:
        done = migrate(
            endpoint_from,
            endpoint_to,
            move,
            wait_s=given["wait"],
            tick=lambda moved: tick(moved, min(moved, total)),
        )
    _show(from_queue, to_queue, done, as_json=as_json)


def _show_plan(
    source: QueueLocation, target: QueueLocation, count: QueueCounts, *, as_json: bool
) -> None:
    if as_json:
        counts = {"waiting": count.waiting, "delayed": count.delayed, "held": count.in_flight}
        emit_json({"from": str(source.address), "to": str(target.address), **counts})
        return
    waiting = counted(count.waiting, "that waits", "that wait")
    delayed = counted(count.delayed, "that is delayed", "that are delayed")
    emit(f"would move {waiting} and {delayed} from {source.address} to {target.address}")
    if count.in_flight:
        held = counted(count.in_flight, "is", "are")
        emit(f"{held} in flight, and would be waited for")
    if count.delayed and target.address.protocol == "gomq":
        emit("GOMQ has no delays: delayed messages would stay")


def _show(
    source: QueueLocation, target: QueueLocation, done: MigrationReport, *, as_json: bool
) -> None:
    if as_json:
        emit_json(
            {
                "from": str(source.address),
                "to": str(target.address),
                "moved": done.moved,
                "total": done.departed.count,
                "digest": f"{done.arrived.sum:012x}",
                "left": {"held": done.left.in_flight, "delayed": done.left.delayed},
                "made": done.made,
            }
        )
        return
    if not done.departed.count and not done.left.in_flight and not done.left.delayed:
        raise NothingThere(f"{source.address} is empty: nothing was moved")
    emit(f"moved {counted(done.moved, 'message')} from {source.address} to {target.address}")
    if done.made:
        emit(f"{target.address} was created")
    summary = f"{done.departed.count} left and {done.arrived.count} arrived since it began"
    emit(f"{summary}, with the same digest {done.arrived.sum:012x}")
    if done.left.in_flight:
        stay = "stays: it is in flight", "stay: they are in flight"
        emit(f"{counted(done.left.in_flight, *stay)}; run it again later")
    if done.left.delayed:
        stay = "stays: it is delayed", "stay: they are delayed"
        summary = f"{target.address.protocol} has no delays"
        emit(f"{counted(done.left.delayed, *stay)}, and {summary}")
