"""Decides when alarms are raised and cleared, from measured values. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tambomq.alarms.model import Alarm, AlarmLimits, AlarmValue, Kind


class AlarmTransition(msgspec.Struct, frozen=True):
    """An alarm that was raised, or one that was cleared, with its last value."""

    alarm: Alarm
    is_raised: bool


def is_beyond(value: float, limits: AlarmLimits, *, was_raised: bool) -> bool:
    """Whether an alarm is raised at *value*: it is cleared later than it was raised."""
    if limits.clear_at > limits.raise_at:
        return value < (limits.clear_at if was_raised else limits.raise_at)
    return value >= limits.raise_at or (was_raised and value >= limits.clear_at)


class AlarmState:
    """The alarms that are raised now."""

    def __init__(self) -> None:
        self._raised: dict[tuple[Kind, str], Alarm] = {}

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """The raised alarms, those that stop all producers first."""
        by_scope = sorted(self._raised, key=lambda key: (key[0] == "queue_length", key))
        return tuple(self._raised[key] for key in by_scope)

    def update(self, kind: Kind, readings: Iterable[AlarmValue]) -> list[AlarmTransition]:
        """Take all *readings* of one kind; return what changed.

        What is no longer measured, such as a deleted queue, has no alarm. A kind that cannot be
        measured is not updated, and keeps its alarms.
        """
        before = {key: alarm for key, alarm in self._raised.items() if key[0] == kind}
        after: dict[tuple[Kind, str], Alarm] = {}
        last: dict[tuple[Kind, str], Alarm] = {}
        for each in readings:
            key = (kind, each.subject)
            last[key] = _alarm_of(each)
            if is_beyond(each.value, each.limits, was_raised=key in before):
                after[key] = last[key]
        changes = [
            AlarmTransition(after[key], is_raised=True) for key in after if key not in before
        ]
        changes += [
            AlarmTransition(last.get(key, alarm), is_raised=False)
            for key, alarm in before.items()
            if key not in after
        ]
        for key in before:
            del self._raised[key]
        self._raised |= after
        return changes


def _alarm_of(reading: AlarmValue) -> Alarm:
    limits = reading.limits
    return Alarm(reading.kind, reading.subject, reading.value, limits.raise_at, limits.clear_at)
