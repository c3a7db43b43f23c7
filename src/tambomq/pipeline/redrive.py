"""Dead letters on their way back: some go ahead, and the others follow if these are well.

What was moved is written down by the script that moves it, so a redrive can die anywhere, and
goes on under its id.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tambomq.clock import Deadline, now_ms
from tambomq.errors import InvalidFormat, JournalFull, QueueError, SettingsError
from tambomq.ids import letters
from tambomq.pipeline import picks as picking
from tambomq.pipeline.graves import Grave
from tambomq.pipeline.issued import Issued
from tambomq.pipeline.pace import Pace, part_of
from tambomq.pipeline.picks import Pick
from tambomq.rsmq.keys import check_lease
from tambomq.store.redrives import CHUNK, DONE, OPEN, STOPPED, UNDONE, Redrive

ATTEMPTS: Final = ("reset", "keep")
CANARY_WAIT_S: Final = 60.0
TOLERANCE: Final = 0.1
_ID_LETTERS: Final = 10
_LOOK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Order:
    """What somebody asks for. What is `None` is not said."""

    where: str | None = None
    rewrite: str | None = None
    """The new body, as Spark SQL."""
    attempts: str | None = None
    id: str | None = None
    canary: float | None = None
    """The share that goes ahead."""
    canary_wait_s: float = CANARY_WAIT_S
    tolerance: float = TOLERANCE
    """The share of those that may fail."""
    per_s: float | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be moved, and under which name. Nothing has happened yet."""

    told: Redrive
    picks: list[Pick]
    is_known: bool
    """Whether it was begun before."""


@dataclass(slots=True)
class Outcome:
    """What a redrive came to."""

    id: str
    selected: int
    moved: int = 0
    held: int = 0
    refused: int = 0
    state: str = OPEN
    canary: int = 0
    fates: dict[str, int] = field(default_factory=dict)
    """Of those that went ahead."""
    why: str = ""


def plan(
    grave: Grave, spark: Callable[[], Any], order: Order, issued: Issued | None = None
) -> Planned:
    """Return what *order* comes to; raise `SettingsError` if it makes no sense.

    *spark* starts Spark, which nobody waits for if something else is wrong. SQL that was found in
    Redis is used only if it is in *issued*, or *order* has the same.
    """
    before = next((each for each in grave.known() if each.id == order.id), None)
    if before:
        told = _again(before, order)
        _check_words(grave, told, order, issued)
    else:
        told = _new(grave, order)
    chosen = picking.chosen(spark(), grave, told.where, told.rewrite, told.until)
    chosen = chosen[: order.limit]
    if before is None:
        canary = part_of(len(chosen), order.canary) if order.canary else 0
        told = msgspec.structs.replace(told, selected=len(chosen), canary=canary)
    return Planned(told, chosen, before is not None)


def run(
    grave: Grave, planned: Planned, order: Order, tick: Callable[[int], object] = lambda _: None
) -> Outcome:
    """Move what is planned; *tick* is told how many are. Who follows after a crash goes on.

    Raises `QueueError` if the redrive was undone, or the queue or its journal is full.
    """
    told = grave.begin(planned.told)
    wants_check = bool(told.canary) and not (told.state == STOPPED and order.canary is None)
    outcome = Outcome(told.id, told.selected, told.moved, canary=told.canary)
    grave.settle(told, OPEN)
    rest = planned.picks
    if wants_check:
        ahead, rest = _split(rest, told.canary - told.moved)
        told = _move(grave, told, ahead, order, outcome, tick)
        fates = _await_fates(grave, told, order.canary_wait_s)
        outcome.fates = dict(fates)
        outcome.why = verdict(fates, order)
        if outcome.why:
            grave.settle(told, STOPPED)
            outcome.state = STOPPED
            return outcome
    told = _move(grave, told, rest, order, outcome, tick)
    grave.settle(told, DONE)
    outcome.state = DONE
    return outcome


def verdict(fates: Counter[str], order: Order) -> str:
    """Return why the others are not to follow those that went ahead; '' if they are."""
    total = fates.total()
    failed = fates["died"] + fates["retrying"]
    unsure = fates["waiting"] + fates["running"]
    if failed > order.tolerance * total:
        return f"{failed} of {total} that went ahead failed again"
    if failed + unsure > order.tolerance * total:
        told = f"{unsure} of {total} that went ahead were not done after {order.canary_wait_s:g} s"
        return f"{told}: is a worker there?"
    return ""


def _new(grave: Grave, order: Order) -> Redrive:
    attempts = order.attempts or "reset"
    if attempts == "keep" and grave.address.protocol == "rsmq":
        raise SettingsError("--attempts keep: RSMQ forgets receives when a message dies")
    id = order.id or letters(_ID_LETTERS)
    try:
        check_lease(id)
    except InvalidFormat as fault:
        raise SettingsError(f"--id: {fault}") from fault
    return Redrive(
        id,
        order.where or "",
        order.rewrite or "",
        attempts,
        until=grave.until(),
        dead=getattr(grave, "dead", ""),
        begun_ms=now_ms(),
    )


def _again(before: Redrive, order: Order) -> Redrive:
    if before.state == UNDONE:
        raise SettingsError(f"redrive {before.id!r} was undone: begin another, with another --id")
    for flag, old, new in (
        ("--where", before.where, order.where),
        ("--set", before.rewrite, order.rewrite),
        ("--attempts", before.attempts, order.attempts),
    ):
        if new is not None and new != old:
            raise SettingsError(
                f"redrive {before.id!r} was begun with {flag} {old!r}: leave {flag} out to go on, "
                "or begin another, with another --id"
            )
    return before


def _check_words(grave: Grave, told: Redrive, order: Order, issued: Issued | None) -> None:
    """Raise `SettingsError` if *told* has SQL that nobody knows to be this user's."""
    given = (order.where or "", order.rewrite or "")
    if (told.where, told.rewrite) in (("", ""), given):
        return
    if issued is not None and issued.knows(grave.address, told):
        return
    words = [f"--where {told.where!r}"] if told.where else []
    words += [f"--set {f'payload = {told.rewrite}'!r}"] if told.rewrite else []
    raise SettingsError(
        f"redrive {told.id!r} of {grave.address} was not begun here with the SQL that Redis has of "
        f"it, and others may have written that: {' '.join(words)}. If it is what you want, give "
        f"the same options beside --id {told.id}"
    )


def _split(picks: list[Pick], count: int) -> tuple[list[Pick], list[Pick]]:
    return picks[: max(0, count)], picks[max(0, count) :]


def _move(
    grave: Grave,
    told: Redrive,
    picks: Sequence[Pick],
    order: Order,
    outcome: Outcome,
    tick: Callable[[int], object],
) -> Redrive:
    pace, begun = Pace(order.per_s, CHUNK), time.monotonic()
    for first in range(0, len(picks), pace.step):
        some = picks[first : first + pace.step]
        try:
            moved = grave.move(told, some)
        except JournalFull as full:
            raise _unrecorded(grave, told, full) from full
        told = msgspec.structs.replace(told, moved=moved.total)
        outcome.moved = moved.total
        outcome.held += moved.held
        outcome.refused += moved.refused
        if moved.is_full:
            raise _full(grave, told)
        tick(moved.total)
        if first + len(some) < len(picks):
            time.sleep(pace.wait_s(first + len(some), time.monotonic() - begun))
    return told


def _full(grave: Grave, told: Redrive) -> QueueError:
    queue = grave.address.queue
    return QueueError(
        queue,
        f"queue {queue!r} is full, {told.moved} letters were moved: let workers catch up, and go "
        f"on with --id {told.id}",
    )


def _unrecorded(grave: Grave, told: Redrive, full: JournalFull) -> QueueError:
    # Some of these may have been moved before it was full.
    moved = next((each.moved for each in grave.known() if each.id == told.id), told.moved)
    queue = grave.address.queue
    return QueueError(queue, f"{full}; {moved} letters were moved, go on with --id {told.id}")


def _await_fates(grave: Grave, told: Redrive, within_s: float) -> Counter[str]:
    deadline = Deadline(within_s)
    while True:
        fates = grave.fates(told)
        if not fates["waiting"] + fates["running"] + fates["retrying"] or deadline.passed:
            return fates
        time.sleep(min(_LOOK_S, deadline.left_s))
