"""What a scheduler does with a repeatable job that is due: what it fires, when it looks again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from tambomq.chasqui.cron import next_fire_ms
from tambomq.chasqui.repeat import RepeatPattern, RepeatSpec

TOO_LATE_MS = 60_000
"""A fire that is so much later than its pattern goes was written by a clock that was wrong."""
MOST_FIRES = 10_000
"""Of one spec in one tick. What is left over is lost, as it is beyond `max_catchup`."""


class Agenda(msgspec.Struct, frozen=True):
    """What to do with a spec now."""

    fires: tuple[int, ...]
    """The times to make a job for, oldest first."""
    next_ms: int | None
    """When it is due again, never in the past; `None` if never."""


def agenda(spec: RepeatSpec, fire_at_ms: int, now_ms: int, tick_ms: int) -> Agenda:
    """Return what to do at *now_ms* with a spec that was due at *fire_at_ms*.

    A fire is missed when the one after it is due as well. A scheduler that looks every *tick_ms*
    sees short intervals in no other way, so up to one tick is not late.
    """
    if fire_at_ms > now_ms:
        return Agenda((), fire_at_ms)
    next_ms = next_fire_ms(spec.pattern, fire_at_ms, spec.start_after_ms)
    policy = spec.missed_fires
    most = 1
    if next_ms is not None and next_ms < now_ms:
        if policy.kind == "fire-all":
            most = min(policy.max_catchup or 0, MOST_FIRES)
        elif policy.kind == "skip" and now_ms - fire_at_ms > tick_ms:
            most = 0
        next_ms = _first_future_ms(spec.pattern, next_ms, now_ms)
    until_ms = now_ms if spec.end_before_ms is None else min(now_ms, spec.end_before_ms)
    return Agenda(tuple(islice(_fires(spec, fire_at_ms, until_ms), most)), next_ms)


def brought_back_ms(spec: RepeatSpec, fire_at_ms: int, now_ms: int) -> int | None:
    """Return when *spec* is due in truth; `None` if *fire_at_ms* may be right.

    A machine whose clock is ahead writes a fire that its pattern does not reach from now: none
    would be made until that time has come.
    """
    latest_ms = next_fire_ms(spec.pattern, now_ms + TOO_LATE_MS, spec.start_after_ms)
    if latest_ms is None or fire_at_ms <= latest_ms:
        return None
    return next_fire_ms(spec.pattern, now_ms, spec.start_after_ms)


def _fires(spec: RepeatSpec, fire_at_ms: int, until_ms: int) -> Iterator[int]:
    fire_ms: int | None = fire_at_ms
    while fire_ms is not None and fire_ms <= until_ms:
        yield fire_ms
        fire_ms = next_fire_ms(spec.pattern, fire_ms, spec.start_after_ms)


def _first_future_ms(pattern: RepeatPattern, past_ms: int, now_ms: int) -> int | None:
    # The engine steps from fire to fire and gives up after 100,000; what it would
    # arrive at follows from now alone or, for an interval, from any fire before.
    if pattern.kind == "every" and pattern.interval_ms:
        now_ms -= (now_ms - past_ms) % pattern.interval_ms
    return next_fire_ms(pattern, now_ms)
