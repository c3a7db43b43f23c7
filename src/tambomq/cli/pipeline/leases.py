"""``tambo pipeline leases``: which queries have taken messages, and ending those that are dead."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import click

from tambomq.cli.output import NothingThere, emit, emit_json, emit_table, example, yes_option
from tambomq.cli.pipeline.client import confirm, counted, every_command, open_store
from tambomq.clock import Deadline, backoff_delays, now_ms
from tambomq.errors import LeaseTaken
from tambomq.pipeline.address import address
from tambomq.pipeline.leases import DEAD, LeaseDirectory, LocatedLease
from tambomq.rsmq.keys import NAMESPACE

T = TypeVar("T")

RESIGNS_WITHIN_S: Final = 3.0
"""How long a command waits for a query that has just ended: Spark lets it go a moment later."""

_NS: Final = click.option(
    "--ns", default=NAMESPACE, metavar="NAME", help=f"RSMQ's namespace. [{NAMESPACE}]"
)


@click.group(
    epilog=example(
        "tambo pipeline leases list",
        "tambo pipeline leases release chasqui:orders nightly",
        "tambo pipeline leases release --dead --yes",
        "tambo pipeline leases forget rsmq:orders nightly --give-back",
    )
)
def leases() -> None:
    """Show what streaming queries have taken, and end leases without a live query."""


@leases.command("list")
@click.argument("queue", required=False)
@_NS
@every_command
def show(queue: str | None, *, ns: str, as_json: bool) -> None:
    """Show all leases, or those on QUEUE, such as chasqui:orders."""
    known = _known(ns)
    found = list(known.on(address(queue)) if queue else known.all())
    if as_json:
        emit_json([_object(each) for each in found])
        return
    if not found:
        raise NothingThere("no query has a lease")
    now = now_ms()
    rows = [
        (
            str(held.address),
            held.lease.name,
            held.lease.state,
            held.lease.claim or "",
            held.lease.size,
            held.lease.acked,
            f"{(held.lease.until_ms - now) / 1000:.0f} s" if held.lease.until_ms else "",
            held.lease.holder,
        )
        for held in found
    ]
    names = ("queue", "lease", "state", "claim", "messages", "claims done", "ends in", "holder")
    emit_table(names, rows)


@leases.command()
@click.argument("queue", required=False)
@click.argument("lease", required=False)
@click.option("--dead", is_flag=True, help="All whose query was away for too long.")
@_NS
@yes_option
@every_command
def release(
    queue: str | None, lease: str | None, *, dead: bool, ns: str, yes: bool, as_json: bool
) -> None:
    """Return the messages of a LEASE on QUEUE that no live query holds.

    A query that comes back to it finds that they are lost to it.
    """
    if dead == bool(queue and lease):
        raise click.UsageError("give a queue and a lease, or --dead")
    known = _known(ns)
    if dead:
        found = [(each.address, each.lease.name) for each in known.all() if _is_dead(each)]
    else:
        found = [(address(str(queue)), str(lease))]
    if not found:
        raise NothingThere("no lease is dead")
    confirm(f"Release {len(found)}?", yes=yes)
    counts = {
        f"{target} {name}": _when_free(partial(known.release, target, name))
        for target, name in found
    }
    if as_json:
        emit_json(counts)
        return
    for what, count in counts.items():
        emit(f"{what}: {counted(count, 'message')} given back")


@leases.command()
@click.argument("queue")
@click.argument("lease")
@click.option("--give-back", is_flag=True, help="And give back what it has.")
@_NS
@yes_option
@every_command
def forget(queue: str, lease: str, *, give_back: bool, ns: str, yes: bool, as_json: bool) -> None:
    """Remove a LEASE on QUEUE for good, as if its query had never been."""
    target = address(queue)
    confirm(f"Forget the lease {lease} on {target}?", yes=yes)
    known = _known(ns)
    if not _when_free(partial(known.forget, target, lease, give_back=give_back)):
        raise NothingThere(f"there is no lease {lease} on {target}")
    if as_json:
        emit_json({"queue": str(target), "lease": lease})
    else:
        emit(f"forgot the lease {lease} on {target}")


def _when_free(act: Callable[[], T]) -> T:
    """Return what *act* returns, once no query that is ending holds the lease."""
    deadline, delays = Deadline(RESIGNS_WITHIN_S), backoff_delays()
    while True:
        try:
            return act()
        except LeaseTaken:
            if not deadline.left_s:
                raise
        time.sleep(min(next(delays), deadline.left_s))


def _known(ns: str) -> LeaseDirectory:
    known = LeaseDirectory(open_store(), ns=ns)
    click.get_current_context().call_on_close(known.close)
    return known


def _is_dead(held: LocatedLease) -> bool:
    return held.lease.state == DEAD and bool(held.lease.claim)


def _object(held: LocatedLease) -> dict[str, Any]:
    lease = held.lease
    return {
        "queue": str(held.address),
        "lease": lease.name,
        "state": lease.state,
        "holder": lease.holder,
        "until_ms": lease.until_ms,
        "acked": lease.acked,
        "claim": lease.claim,
        "messages": lease.size,
    }
