"""The operations and faults of a history: pairs of events, with a beginning and an end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from tests.chaos.history import EVERYONE, Event, Outcome

KILLS = frozenset({"kill"})
"""Kinds of faults after which a process does nothing any more."""
LOSES_ALL = frozenset({"flushall"})
"""Kinds of faults after which the server has nothing of what it had before."""
LOSES_LATEST = frozenset({"failover"})
"""Kinds of faults after which it may not have what it got last, unless replicas had it too."""
ENDS_LEASES = frozenset({"clock-hour"})
"""Kinds of faults that end all leases, however short they are themselves."""
CLOCK = "clock"
"""With this begin the kinds of faults in which the server's clock is wrong; and their target."""
LAG_S = 10.0
"""How long before such a fault what was confirmed may be lost: replication is not that late."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A send, or the run of a handler."""

    begin: Event
    end: Event | None
    until: float
    """When it ended: at the latest when its process was killed."""

    @property
    def outcome(self) -> Outcome:
        """How it ended; unknown if it did not."""
        return self.end.outcome if self.end else "unknown"

    @property
    def events(self) -> tuple[Event, ...]:
        """Its lines."""
        return (self.begin, self.end) if self.end else (self.begin,)


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault: what it hit, from when and until when."""

    kind: str
    target: str
    since: float
    until: float
    event: Event

    def hits(self, actor: str) -> bool:
        """Whether *actor* notices it."""
        return self.target in (EVERYONE, actor)

    @property
    def forgets(self) -> bool:
        """Whether the server loses what it had, or takes for long ago what was just now."""
        return self.kind in LOSES_ALL | LOSES_LATEST or self.kind.startswith(CLOCK)

    def may_lose(self, confirmed_at: float, *, is_replicated: bool) -> bool:
        """Whether what was confirmed at that time may be lost by it."""
        if self.kind in LOSES_ALL:
            return confirmed_at < self.until
        if self.kind in LOSES_LATEST and not is_replicated:
            return self.since - LAG_S < confirmed_at < self.until
        return False

    def can_cost_lease(self, since: float, until: float, silence_s: float) -> bool:
        """Whether between two times it lasted for *silence_s*, or ended leases as such."""
        needed_s = 0.0 if self.kind in ENDS_LEASES else silence_s
        return self.overlap_s(since, until) >= needed_s

    def overlap_s(self, since: float, until: float) -> float:
        """How long it lasted between two times; below zero if it did not."""
        return min(self.until, until) - max(self.since, since)


def disturbances(history: Iterable[Event]) -> list[Disturbance]:
    """Return the faults of a history; one that was not ended lasts for ever."""
    faults = [event for event in history if event.action == "fault"]
    ends = {(e.actor, e.operation): e for e in faults if e.outcome != "invoke"}
    found = []
    for event in faults:
        if event.outcome == "invoke":
            end = ends.get((event.actor, event.operation))
            until = end.at if end and event.detail not in KILLS else inf
            found.append(Disturbance(event.detail, event.message, event.at, until, event))
    return found


def operations(
    history: Sequence[Event], action: str, faults: Iterable[Disturbance]
) -> dict[str, list[Operation]]:
    """Return the operations of one kind by message, each in order of their beginnings."""
    killed = {each.target: each.since for each in faults if each.kind in KILLS}
    ends = {
        (event.actor, event.operation): event
        for event in history
        if event.action == action and event.outcome != "invoke"
    }
    found: dict[str, list[Operation]] = defaultdict(list)
    for event in history:
        if event.action == action and event.outcome == "invoke":
            end = ends.get((event.actor, event.operation))
            until = end.at if end else killed.get(event.actor, inf)
            found[event.message].append(Operation(event, end, until))
    return found
