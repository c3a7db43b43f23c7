"""Redrives dead letters: moves a canary first, and the rest if the canary succeeds.

The script that moves a dead letter records it, so a redrive that dies at any point can be resumed
under its id.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tambomq.bulk.rate_limiter import RateLimiter
from tambomq.bulk.redrives import CHUNK, DONE, OPEN, STOPPED, UNDONE, Redrive
from tambomq.clock import Deadline, now_ms
from tambomq.errors import InvalidFormat, JournalFull, QueueError, SettingsError
from tambomq.ids import letters
from tambomq.pipeline.dlq import selection as letter_selection
from tambomq.pipeline.dlq.issued import IssuedRedrives
from tambomq.pipeline.dlq.queues import DeadLetterQueue
from tambomq.pipeline.dlq.selection import Selection
from tambomq.pipeline.transfer.pace import part_of
from tambomq.rsmq.keys import check_lease

ATTEMPTS: Final = ("reset", "keep")
CANARY_WAIT_S: Final = 60.0
TOLERANCE: Final = 0.1
_ID_LETTERS: Final = 10
_POLL_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class RedriveOptions:
    """The options of a redrive; `None` where the user gave none."""

    condition: str | None = None
    """Which dead letters, as Spark SQL."""
    rewrite: str | None = None
    """The new body, as Spark SQL."""
    attempts: str | None = None
    id: str | None = None
    canary: float | None = None
    """The share of the dead letters that is moved first."""
    canary_wait_s: float = CANARY_WAIT_S
    tolerance: float = TOLERANCE
    """The share of the canary that may fail."""
    per_s: float | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class RedrivePlan:
    """A redrive with its selected dead letters, before anything is moved."""

    redrive: Redrive
    selections: list[Selection]
    is_known: bool
    """Whether it was started before."""


@dataclass(slots=True)
class RedriveResult:
    """What a redrive has moved, and how it ended."""

    id: str
    selected: int
    moved: int = 0
    held: int = 0
    refused: int = 0
    state: str = OPEN
    canary: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    """The states of the canary messages."""
    why: str = ""


def plan(
    dlq: DeadLetterQueue,
    spark: Callable[[], Any],
    options: RedriveOptions,
    issued: IssuedRedrives | None = None,
) -> RedrivePlan:
    """Return the plan for *options*; raise `SettingsError` if they contradict each other.

    *spark* starts Spark; it is called last, since that takes seconds. SQL that was found in Redis
    is used only if it is recorded in *issued*, or *options* have the same.
    """
    before = next((each for each in dlq.known() if each.id == options.id), None)
    if before:
        redrive = _resumed(before, options)
        _check_sql(dlq, redrive, options, issued)
    else:
        redrive = _new(dlq, options)
    chosen = letter_selection.chosen(spark(), dlq, redrive.where, redrive.rewrite, redrive.until)
    chosen = chosen[: options.limit]
    if before is None:
        canary = part_of(len(chosen), options.canary) if options.canary else 0
        redrive = msgspec.structs.replace(redrive, selected=len(chosen), canary=canary)
    return RedrivePlan(redrive, chosen, before is not None)


def run(
    dlq: DeadLetterQueue,
    planned: RedrivePlan,
    options: RedriveOptions,
    tick: Callable[[int], object] = lambda _: None,
) -> RedriveResult:
    """Move what is planned, calling *tick* with the number of moved letters; may be resumed.

    Raises `QueueError` if the redrive was undone, or the queue or its journal is full.
    """
    redrive = dlq.begin(planned.redrive)
    wants_check = bool(redrive.canary) and not (redrive.state == STOPPED and options.canary is None)
    result = RedriveResult(redrive.id, redrive.selected, redrive.moved, canary=redrive.canary)
    dlq.settle(redrive, OPEN)
    rest = planned.selections
    if wants_check:
        ahead, rest = _split(rest, redrive.canary - redrive.moved)
        redrive = _move(dlq, redrive, ahead, options, result, tick)
        outcomes = _await_outcomes(dlq, redrive, options.canary_wait_s)
        result.outcomes = dict(outcomes)
        result.why = reason_to_stop(outcomes, options)
        if result.why:
            dlq.settle(redrive, STOPPED)
            result.state = STOPPED
            return result
    redrive = _move(dlq, redrive, rest, options, result, tick)
    dlq.settle(redrive, DONE)
    result.state = DONE
    return result


def reason_to_stop(outcomes: Counter[str], options: RedriveOptions) -> str:
    """Return why the rest must not follow the canary; '' if it may."""
    total = outcomes.total()
    failed = outcomes["died"] + outcomes["retrying"]
    unsure = outcomes["waiting"] + outcomes["running"]
    if failed > options.tolerance * total:
        return f"{failed} of {total} canary messages failed again"
    if failed + unsure > options.tolerance * total:
        text = f"{unsure} of {total} canary messages were not done"
        return f"{text} after {options.canary_wait_s:g} s: is a worker running?"
    return ""


def _new(dlq: DeadLetterQueue, options: RedriveOptions) -> Redrive:
    attempts = options.attempts or "reset"
    if attempts == "keep" and dlq.address.protocol == "rsmq":
        raise SettingsError(
            "--attempts keep: RSMQ does not keep the receive count of a dead message"
        )
    id = options.id or letters(_ID_LETTERS)
    try:
        check_lease(id)
    except InvalidFormat as fault:
        raise SettingsError(f"--id: {fault}") from fault
    return Redrive(
        id,
        options.condition or "",
        options.rewrite or "",
        attempts,
        until=dlq.until(),
        dead=getattr(dlq, "dead", ""),
        begun_ms=now_ms(),
    )


def _resumed(before: Redrive, options: RedriveOptions) -> Redrive:
    if before.state == UNDONE:
        raise SettingsError(f"redrive {before.id!r} was undone: start another, with another --id")
    for flag, old, new in (
        ("--where", before.where, options.condition),
        ("--set", before.rewrite, options.rewrite),
        ("--attempts", before.attempts, options.attempts),
    ):
        if new is not None and new != old:
            raise SettingsError(
                f"redrive {before.id!r} was started with {flag} {old!r}: leave {flag} out to "
                "resume it, or start another, with another --id"
            )
    return before


def _check_sql(
    dlq: DeadLetterQueue,
    redrive: Redrive,
    options: RedriveOptions,
    issued: IssuedRedrives | None,
) -> None:
    """Raise `SettingsError` if *redrive* has SQL from Redis that this user did not write."""
    given = (options.condition or "", options.rewrite or "")
    if (redrive.where, redrive.rewrite) in (("", ""), given):
        return
    if issued is not None and issued.knows(dlq.address, redrive):
        return
    words = [f"--where {redrive.where!r}"] if redrive.where else []
    words += [f"--set {f'payload = {redrive.rewrite}'!r}"] if redrive.rewrite else []
    raise SettingsError(
        f"redrive {redrive.id!r} of {dlq.address} was not started by this user with the SQL that "
        f"is stored in Redis, which others can change: {' '.join(words)}. To run it all the "
        f"same, repeat these options with --id {redrive.id}"
    )


def _split(selections: list[Selection], count: int) -> tuple[list[Selection], list[Selection]]:
    return selections[: max(0, count)], selections[max(0, count) :]


def _move(
    dlq: DeadLetterQueue,
    redrive: Redrive,
    selections: Sequence[Selection],
    options: RedriveOptions,
    result: RedriveResult,
    tick: Callable[[int], object],
) -> Redrive:
    limiter, started = RateLimiter(options.per_s, CHUNK), time.monotonic()
    for first in range(0, len(selections), limiter.step):
        some = selections[first : first + limiter.step]
        try:
            moved = dlq.move(redrive, some)
        except JournalFull as full:
            raise _unrecorded(dlq, redrive, full) from full
        redrive = msgspec.structs.replace(redrive, moved=moved.total)
        result.moved = moved.total
        result.held += moved.held
        result.refused += moved.refused
        if moved.is_full:
            raise _full(dlq, redrive)
        tick(moved.total)
        if first + len(some) < len(selections):
            time.sleep(limiter.wait_s(first + len(some), time.monotonic() - started))
    return redrive


def _full(dlq: DeadLetterQueue, redrive: Redrive) -> QueueError:
    queue = dlq.address.queue
    return QueueError(
        queue,
        f"queue {queue!r} is full, {redrive.moved} letters were moved: let workers catch up, and "
        f"resume with --id {redrive.id}",
    )


def _unrecorded(dlq: DeadLetterQueue, redrive: Redrive, full: JournalFull) -> QueueError:
    # Some of the chunk may have been moved before the journal was full.
    moved = next((each.moved for each in dlq.known() if each.id == redrive.id), redrive.moved)
    queue = dlq.address.queue
    return QueueError(queue, f"{full}; {moved} letters were moved, resume with --id {redrive.id}")


def _await_outcomes(dlq: DeadLetterQueue, redrive: Redrive, within_s: float) -> Counter[str]:
    deadline = Deadline(within_s)
    while True:
        outcomes = dlq.outcomes(redrive)
        if not outcomes["waiting"] + outcomes["running"] + outcomes["retrying"] or deadline.passed:
            return outcomes
        time.sleep(min(_POLL_S, deadline.left_s))
