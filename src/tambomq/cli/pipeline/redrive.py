"""``tambo pipeline dlq redrive``: let dead letters be delivered again."""

from __future__ import annotations

from typing import Any, Final

import click

from tambomq.cli.long_input import progress
from tambomq.cli.output import FAILED, NothingThere, emit, emit_json, example
from tambomq.cli.pipeline_client import (
    counted,
    every_command,
    journal_option,
    open_store,
    redis_url,
)
from tambomq.cli.pipeline_spark import master_option, open_spark
from tambomq.pipeline import pace
from tambomq.pipeline.address import Address, address
from tambomq.pipeline.graves import PROTOCOLS, Yard
from tambomq.pipeline.issued import Issued
from tambomq.pipeline.picks import rewriting
from tambomq.pipeline.redrive import ATTEMPTS, Order, Outcome, Planned, plan, run
from tambomq.rsmq.keys import NAMESPACE
from tambomq.store.redrives import STOPPED

_SAMPLES: Final = 5


@click.command(
    epilog=example(
        "tambo pipeline dlq redrive chasqui:orders --dry-run",
        "tambo pipeline dlq redrive chasqui:orders \\",
        "  --where \"reason = 'retries_exhausted' AND name = 'email'\" --rate 200/s --canary 1%",
        "tambo pipeline dlq redrive rsmq:orders --set \"body = upper(decode(body, 'UTF-8'))\"",
    )
)
@click.argument("queue")
@click.option("--where", metavar="SQL", help="Which letters, as Spark SQL over the table. [all]")
@click.option("--set", "rewrite", metavar="SQL", help="payload = <expression>: new bodies.")
@click.option(
    "--attempts",
    type=click.Choice(ATTEMPTS),
    help="Give jobs all their attempts again, or let them go on counting. [reset]",
)
@click.option("--rate", metavar="COUNT/s", help="So many at most, also per min or h. [no limit]")
@click.option("--canary", metavar="PERCENT", help="Let so many go ahead, and see how they fare.")
@click.option("--canary-wait", default="60s", metavar="TIME", help="For so long. [60s]")
@click.option("--tolerance", default="10%", metavar="PERCENT", help="So many may fail. [10%]")
@click.option("--limit", type=click.IntRange(min=1), metavar="COUNT", help="The oldest so many.")
@click.option("--id", metavar="NAME", help="A name for this redrive, or the one to go on with.")
@click.option("--dry-run", is_flag=True, help="Tell what would be moved, and move nothing.")
@click.option("--ns", default=NAMESPACE, metavar="NAME", help=f"RSMQ's namespace. [{NAMESPACE}]")
@click.option("--dead", default="", metavar="NAME", help="RSMQ's dead-letter queue. [<queue>-dead]")
@journal_option
@master_option
@every_command
@click.pass_context
def redrive(ctx: click.Context, /, queue: str, *, as_json: bool, **given: Any) -> None:
    """Let dead letters of QUEUE (chasqui:orders, rsmq:orders) be delivered again.

    Each is moved in one step and written down. Interrupted, the same command with the --id that it
    told goes on; somebody else gives the same --where and --set as well. `dlq undo` puts back what
    nobody has taken yet. Exit 1 if the canary failed.
    """
    where, order = address(queue, PROTOCOLS), _order(given)
    asked = {key: given[key] for key in ("ns", "dead", "journal")}
    grave = Yard(open_store(), redis_url(), **asked).grave(where)
    issued = Issued()
    planned = plan(grave, lambda: open_spark("tambo pipeline dlq", given["master"]), order, issued)
    if not planned.picks and not planned.is_known:
        chosen = f" that {order.where} is true of" if order.where else ""
        raise NothingThere(f"{where} has no dead letters{chosen}: nothing was moved")
    if given["dry_run"]:
        _show_plan(where, planned, order, as_json=as_json)
        return
    _note(issued, where, planned)
    # Whoever is interrupted must know how to go on.
    letters = counted(len(planned.picks), "letter")
    click.echo(f"redrive {where}/{planned.told.id}: {letters}", err=True)
    with progress("moving", "letters", planned.told.selected, shown=not as_json) as tick:
        done = run(grave, planned, order, lambda moved: tick(moved, moved))
    _show(where, done, as_json=as_json)
    if done.state == STOPPED:
        ctx.exit(FAILED)


def _note(issued: Issued, where: Address, planned: Planned) -> None:
    try:
        issued.note(where, planned.told)
    except OSError as error:
        told = f"{issued.path} cannot be written ({error.strerror}): to go on, say --where again"
        click.echo(f"tambo: {told}", err=True)


def _order(given: dict[str, Any]) -> Order:
    return Order(
        where=given["where"],
        rewrite=rewriting(given["rewrite"]) if given["rewrite"] else None,
        attempts=given["attempts"],
        id=given["id"],
        canary=pace.share(given["canary"]) if given["canary"] else None,
        canary_wait_s=pace.seconds(given["canary_wait"]),
        tolerance=pace.share(given["tolerance"]),
        per_s=pace.rate(given["rate"]) if given["rate"] else None,
        limit=given["limit"],
    )


def _show_plan(where: Address, planned: Planned, order: Order, *, as_json: bool) -> None:
    told, count = planned.told, len(planned.picks)
    if as_json:
        samples = [pick.key for pick in planned.picks[:_SAMPLES]]
        emit_json({"queue": str(where), "letters": count, "canary": told.canary, "first": samples})
        return
    such = f", such as {planned.picks[0].key}" if planned.picks else ""
    emit(f"would move {counted(count, 'letter')} of {where}{such}")
    if told.canary:
        emit(f"{told.canary} would go ahead and be watched for {order.canary_wait_s:g} s")


def _show(where: Address, done: Outcome, *, as_json: bool) -> None:
    id = f"{where}/{done.id}"
    if as_json:
        emit_json(
            {
                "id": id,
                "state": done.state,
                "selected": done.selected,
                "moved": done.moved,
                "in_hands": done.held,
                "refused": done.refused,
                "canary": {"letters": done.canary, **done.fates, "why": done.why or None},
            }
        )
        return
    if done.fates:
        fates = ", ".join(f"{count} {fate}" for fate, count in sorted(done.fates.items()))
        emit(f"of {done.canary} that went ahead: {fates}")
    if done.state == STOPPED:
        emit(f"stopped after {done.moved} of {counted(done.selected, 'letter')}: {done.why}")
        emit(f"go on: tambo pipeline dlq redrive {where} --id {done.id}")
    else:
        emit(f"moved {done.moved} of {counted(done.selected, 'letter')}")
    if done.held:
        stay = "stays: somebody is looking at it", "stay: somebody is looking at them"
        emit(counted(done.held, *stay))
    if done.refused:
        stay = "stays: it is no job, or does not fit", "stay: they are no jobs, or do not fit"
        emit(counted(done.refused, *stay))
    emit(f"regret it: tambo pipeline dlq undo {id}")
