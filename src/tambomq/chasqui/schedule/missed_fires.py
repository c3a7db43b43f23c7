"""The plan for a due repeatable job: which fires to add jobs for, and when it is due again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from tambomq.chasqui.repeat import RepeatPattern, RepeatSpec
from tambomq.chasqui.schedule.cron import next_fire_ms

TOO_LATE_MS = 60_000
"""A stored fire this much later than the pattern's next one was written by a wrong clock."""
MAX_FIRES = 10_000
"""Fires of one spec in one tick; further missed ones are dropped, as beyond `max_catchup`."""


class FirePlan(msgspec.Struct, frozen=True):
    """The fires of a due spec, and its next one."""

    fires: tuple[int, ...]
    """The times to add a job for, oldest first."""
    next_ms: int | None
    """When it is due again, never in the past; `None` if never."""


def plan_fires(spec: RepeatSpec, fire_at_ms: int, now_ms: int, tick_ms: int) -> FirePlan:
    """Plan at *now_ms* the fires of a spec that was due at *fire_at_ms*.

    A fire is missed when the next one is due as well. With intervals shorter than *tick_ms*
    that is normal, so a fire within the last tick does not count as missed.
    """
    if fire_at_ms > now_ms:
        return FirePlan((), fire_at_ms)
    next_ms = next_fire_ms(spec.pattern, fire_at_ms, spec.start_after_ms)
    policy = spec.missed_fires
    max_fires = 1
    if next_ms is not None and next_ms < now_ms:
        if policy.kind == "fire-all":
            max_fires = min(policy.max_catchup or 0, MAX_FIRES)
        elif policy.kind == "skip" and now_ms - fire_at_ms > tick_ms:
            max_fires = 0
        next_ms = _first_future_ms(spec.pattern, next_ms, now_ms)
    until_ms = now_ms if spec.end_before_ms is None else min(now_ms, spec.end_before_ms)
    return FirePlan(tuple(islice(_fires(spec, fire_at_ms, until_ms), max_fires)), next_ms)


def corrected_fire_ms(spec: RepeatSpec, fire_at_ms: int, now_ms: int) -> int | None:
    """Return the corrected next fire of *spec*; `None` if *fire_at_ms* may be right.

    A machine whose clock is ahead stores a fire far later than the pattern's next one, and the
    spec would not fire until then.
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
    # The engine steps from fire to fire and gives up after 100,000. The same result follows
    # from the time alone or, for an interval, from any earlier fire.
    if pattern.kind == "every" and pattern.interval_ms:
        now_ms -= (now_ms - past_ms) % pattern.interval_ms
    return next_fire_ms(pattern, now_ms)
