"""``tambo pipeline dlq redrive``: moves dead letters back to their queue."""

from __future__ import annotations

from typing import Any, Final

import click

from tambomq.bulk.redrives import STOPPED
from tambomq.cli.durations import METAVAR, seconds
from tambomq.cli.input import progress
from tambomq.cli.output import FAILED, NothingThere, emit, emit_json, example
from tambomq.cli.pipeline.client import (
    counted,
    every_command,
    journal_option,
    open_store,
    redis_url,
)
from tambomq.cli.pipeline.spark import master_option, open_spark
from tambomq.pipeline.address import Address, address
from tambomq.pipeline.dlq.issued import IssuedRedrives
from tambomq.pipeline.dlq.queues import PROTOCOLS, DeadLetterQueues
from tambomq.pipeline.dlq.redrive import (
    ATTEMPTS,
    RedriveOptions,
    RedrivePlan,
    RedriveResult,
    plan,
    run,
)
from tambomq.pipeline.dlq.selection import rewriting
from tambomq.pipeline.transfer import pace
from tambomq.rsmq.keys import NAMESPACE

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
@click.option("--rate", metavar="COUNT/s", help="So many at most; also 60/m, 600/h. [no limit]")
@click.option("--canary", metavar="PERCENT", help="Move this share first, and watch its outcome.")
@click.option(
    "--canary-wait",
    type=seconds,
    default="60s",
    metavar=METAVAR,
    help="Wait so long for them: 90 (seconds), 5m. [60s]",
)
@click.option("--tolerance", default="10%", metavar="PERCENT", help="So many may fail. [10%]")
@click.option("--limit", type=click.IntRange(min=1), metavar="COUNT", help="The oldest so many.")
@click.option("--id", metavar="NAME", help="A name for this redrive, or the one to go on with.")
@click.option("--dry-run", is_flag=True, help="Show what would be moved, and move nothing.")
@click.option("--ns", default=NAMESPACE, metavar="NAME", help=f"RSMQ's namespace. [{NAMESPACE}]")
@click.option("--dead", default="", metavar="NAME", help="RSMQ's dead-letter queue. [<queue>-dead]")
@journal_option
@master_option
@every_command
@click.pass_context
def redrive(ctx: click.Context, /, queue: str, *, as_json: bool, **given: Any) -> None:
    """Redrive dead letters of QUEUE (chasqui:orders, rsmq:orders).

    Each is moved and recorded in one step. After an interrupt the same command with the printed
    --id resumes; another user gives the same --where and --set as well. `dlq undo` moves back what
    no worker has taken yet. Exit 1 if the canary failed.
    """
    source, options = address(queue, PROTOCOLS), _options(given)
    asked = {key: given[key] for key in ("ns", "dead", "journal")}
    dead_letters = DeadLetterQueues(open_store(), redis_url(), **asked).of(source)
    issued = IssuedRedrives()
    planned = plan(
        dead_letters, lambda: open_spark("tambo pipeline dlq", given["master"]), options, issued
    )
    if not planned.selections and not planned.is_known:
        chosen = f" that {options.condition} is true of" if options.condition else ""
        raise NothingThere(f"{source} has no dead letters{chosen}: nothing was moved")
    if given["dry_run"]:
        _show_plan(source, planned, options, as_json=as_json)
        return
    _note(issued, source, planned)
    # An interrupted user needs the id to resume.
    letters = counted(len(planned.selections), "letter")
    click.echo(f"redrive {source}/{planned.redrive.id}: {letters}", err=True)
    with progress("moving", "letters", planned.redrive.selected, shown=not as_json) as tick:
        done = run(dead_letters, planned, options, lambda moved: tick(moved, moved))
    _show(source, done, as_json=as_json)
    if done.state == STOPPED:
        ctx.exit(FAILED)


def _note(issued: IssuedRedrives, source: Address, planned: RedrivePlan) -> None:
    try:
        issued.note(source, planned.redrive)
    except OSError as error:
        redrive = f"{issued.path} cannot be written ({error.strerror}): to go on, say --where again"
        click.echo(f"tambo: {redrive}", err=True)


def _options(given: dict[str, Any]) -> RedriveOptions:
    return RedriveOptions(
        condition=given["where"],
        rewrite=rewriting(given["rewrite"]) if given["rewrite"] else None,
        attempts=given["attempts"],
        id=given["id"],
        canary=pace.share(given["canary"]) if given["canary"] else None,
        canary_wait_s=given["canary_wait"],
        tolerance=pace.share(given["tolerance"]),
        per_s=pace.rate(given["rate"]) if given["rate"] else None,
        limit=given["limit"],
    )


def _show_plan(
    source: Address, planned: RedrivePlan, options: RedriveOptions, *, as_json: bool
) -> None:
    redrive, count = planned.redrive, len(planned.selections)
    if as_json:
        samples = [selection.key for selection in planned.selections[:_SAMPLES]]
        emit_json(
            {"queue": str(source), "letters": count, "canary": redrive.canary, "first": samples}
        )
        return
    such = f", such as {planned.selections[0].key}" if planned.selections else ""
    emit(f"would move {counted(count, 'letter')} of {source}{such}")
    if redrive.canary:
        emit(f"{redrive.canary} would go ahead and be watched for {options.canary_wait_s:g} s")


def _show(source: Address, done: RedriveResult, *, as_json: bool) -> None:
    id = f"{source}/{done.id}"
    if as_json:
        emit_json(
            {
                "id": id,
                "state": done.state,
                "selected": done.selected,
                "moved": done.moved,
                "in_hands": done.held,
                "refused": done.refused,
                "canary": {"letters": done.canary, **done.outcomes, "why": done.why or None},
            }
        )
        return
    if done.outcomes:
        outcomes = ", ".join(
            f"{count} {outcome}" for outcome, count in sorted(done.outcomes.items())
        )
        emit(f"canary of {done.canary}: {outcomes}")
    if done.state == STOPPED:
        emit(f"stopped after {done.moved} of {counted(done.selected, 'letter')}: {done.why}")
        emit(f"resume it: tambo pipeline dlq redrive {source} --id {done.id}")
    else:
        emit(f"moved {done.moved} of {counted(done.selected, 'letter')}")
    if done.held:
        stay = "stays: a consumer has received it", "stay: consumers have received them"
        emit(counted(done.held, *stay))
    if done.refused:
        stay = "stays: it is invalid, or too long", "stay: they are invalid, or too long"
        emit(counted(done.refused, *stay))
    emit(f"undo it: tambo pipeline dlq undo {id}")
