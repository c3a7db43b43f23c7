"""The rows of silver and gold that a workload must lead to, computed in plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

SeriesKey: TypeAlias = tuple[str, str, str]
LifecycleKey: TypeAlias = tuple[str, str, str, bool]
MINUTE_MS = 60_000


@dataclass(slots=True)
class Lifecycle:
    """The expected lifecycle of a job or message."""

    protocol: str
    queue: str
    id: str
    name: str
    enqueued_ms: int
    delay_ms: int | None = None
    first_run_ms: int | None = None
    last_run_ms: int | None = None
    finished_ms: int | None = None
    attempts: int = 0
    retries: int = 0
    outcome: str = "waiting"
    run_ms: int | None = None
    reason: str | None = None
    error: str | None = None
    body_bytes: int | None = None
    events: int = 0
    revived: bool = False
    failed_ms: list[int] = field(default_factory=list)
    retried_ms: list[int] = field(default_factory=list)

    @property
    def wait_ms(self) -> int | None:
        """Milliseconds between being due and the first run."""
        if self.first_run_ms is None:
            return None
        return max(0, self.first_run_ms - self.enqueued_ms - (self.delay_ms or 0))

    def begin(self, at_ms: int) -> None:
        """Record the start of a run."""
        self.first_run_ms = at_ms if self.first_run_ms is None else self.first_run_ms
        self.last_run_ms, self.outcome = at_ms, "running"
        self.attempts += 1
        self.events += 1

    def end(self, at_ms: int, outcome: str, events: int = 1) -> None:
        """Record the end of the lifecycle."""
        self.finished_ms, self.outcome = at_ms, outcome
        self.events += events


def silver(lifecycles: Iterable[Lifecycle]) -> dict[LifecycleKey, dict[str, Any]]:
    """Return the rows of silver, times in ms, by protocol, queue, id and revived."""
    return {
        (lifecycle.protocol, lifecycle.queue, lifecycle.id, lifecycle.revived): {
            "name": lifecycle.name,
            "enqueued_at": lifecycle.enqueued_ms,
            "delay_ms": lifecycle.delay_ms,
            "first_run_at": lifecycle.first_run_ms,
            "last_run_at": lifecycle.last_run_ms,
            "finished_at": lifecycle.finished_ms,
            "attempts": lifecycle.attempts,
            "retries": lifecycle.retries,
            "outcome": lifecycle.outcome,
            "wait_ms": lifecycle.wait_ms,
            "run_ms": lifecycle.run_ms,
            "reason": lifecycle.reason,
            "error": lifecycle.error,
            "body_bytes": lifecycle.body_bytes,
            "events": lifecycle.events,
        }
        for lifecycle in lifecycles
    }


@dataclass(slots=True)
class Minute:
    """The expected row of gold for one minute."""

    entered: int = 0
    done: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    ended: int = 0
    backlog: int = 0
    oldest_age_s: int | None = None
    waits: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)


def gold(lifecycles: Iterable[Lifecycle]) -> dict[tuple[int, SeriesKey], Minute]:
    """Return the rows of gold by minute (in milliseconds), and protocol, queue and name."""
    found: dict[tuple[int, SeriesKey], Minute] = defaultdict(Minute)
    by_series: dict[SeriesKey, list[Lifecycle]] = defaultdict(list)
    for lifecycle in lifecycles:
        series = (lifecycle.protocol, lifecycle.queue, lifecycle.name)
        by_series[series].append(lifecycle)
        for at_ms, note in _moments(lifecycle):
            note(found[_minute(at_ms), series])
    for (minute, series), row in found.items():
        left = [
            _minute(lifecycle.enqueued_ms)
            for lifecycle in by_series[series]
            if _minute(lifecycle.enqueued_ms) <= minute
            and (lifecycle.finished_ms is None or _minute(lifecycle.finished_ms) > minute)
        ]
        row.backlog = len(left)
        row.oldest_age_s = (minute - min(left)) // 1000 if left else None
    return dict(found)


def _moments(lifecycle: Lifecycle) -> Iterator[tuple[int, Any]]:
    def add(name: str, amount: int = 1) -> Any:
        return lambda row: setattr(row, name, getattr(row, name) + amount)

    yield lifecycle.enqueued_ms, add("entered")
    yield from ((at_ms, add("failed")) for at_ms in lifecycle.failed_ms)
    yield from ((at_ms, add("retried")) for at_ms in lifecycle.retried_ms)
    if lifecycle.first_run_ms is not None:
        yield lifecycle.first_run_ms, lambda row: row.waits.append(lifecycle.wait_ms)
    if lifecycle.finished_ms is not None:
        yield lifecycle.finished_ms, add("ended")
        if lifecycle.outcome in ("done", "dead"):
            yield lifecycle.finished_ms, add(lifecycle.outcome)
        if lifecycle.run_ms is not None:
            yield lifecycle.finished_ms, lambda row: row.runs.append(lifecycle.run_ms)


def _minute(at_ms: int) -> int:
    return at_ms - at_ms % MINUTE_MS
