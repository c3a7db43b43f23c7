"""What a workload comes to, reckoned in plain Python: what silver and gold must say of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Where: TypeAlias = tuple[str, str, str]
Which: TypeAlias = tuple[str, str, str, bool]
MINUTE_MS = 60_000


@dataclass(slots=True)
class Life:
    """All that is to be known of a job or message."""

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
        """How long it waited once it could run."""
        if self.first_run_ms is None:
            return None
        return max(0, self.first_run_ms - self.enqueued_ms - (self.delay_ms or 0))

    def begin(self, at_ms: int) -> None:
        """Note a run."""
        self.first_run_ms = at_ms if self.first_run_ms is None else self.first_run_ms
        self.last_run_ms, self.outcome = at_ms, "running"
        self.attempts += 1
        self.events += 1

    def end(self, at_ms: int, outcome: str, events: int = 1) -> None:
        """Note that it came to its end."""
        self.finished_ms, self.outcome = at_ms, outcome
        self.events += events


def silver(lives: Iterable[Life]) -> dict[Which, dict[str, Any]]:
    """Return the rows of silver, times in milliseconds, by protocol, queue, id and life."""
    return {
        (life.protocol, life.queue, life.id, life.revived): {
            "name": life.name,
            "enqueued_at": life.enqueued_ms,
            "delay_ms": life.delay_ms,
            "first_run_at": life.first_run_ms,
            "last_run_at": life.last_run_ms,
            "finished_at": life.finished_ms,
            "attempts": life.attempts,
            "retries": life.retries,
            "outcome": life.outcome,
            "wait_ms": life.wait_ms,
            "run_ms": life.run_ms,
            "reason": life.reason,
            "error": life.error,
            "body_bytes": life.body_bytes,
            "events": life.events,
        }
        for life in lives
    }


@dataclass(slots=True)
class Minute:
    """What happened in a minute."""

    entered: int = 0
    done: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    gone: int = 0
    backlog: int = 0
    oldest_age_s: int | None = None
    waits: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)


def gold(lives: Iterable[Life]) -> dict[tuple[int, Where], Minute]:
    """Return the rows of gold by minute (in milliseconds), and protocol, queue and name."""
    found: dict[tuple[int, Where], Minute] = defaultdict(Minute)
    by_place: dict[Where, list[Life]] = defaultdict(list)
    for life in lives:
        where = (life.protocol, life.queue, life.name)
        by_place[where].append(life)
        for at_ms, note in _moments(life):
            note(found[_minute(at_ms), where])
    for (minute, where), row in found.items():
        left = [
            _minute(life.enqueued_ms)
            for life in by_place[where]
            if _minute(life.enqueued_ms) <= minute
            and (life.finished_ms is None or _minute(life.finished_ms) > minute)
        ]
        row.backlog = len(left)
        row.oldest_age_s = (minute - min(left)) // 1000 if left else None
    return dict(found)


def _moments(life: Life) -> Iterator[tuple[int, Any]]:
    def add(name: str, amount: int = 1) -> Any:
        return lambda row: setattr(row, name, getattr(row, name) + amount)

    yield life.enqueued_ms, add("entered")
    yield from ((at_ms, add("failed")) for at_ms in life.failed_ms)
    yield from ((at_ms, add("retried")) for at_ms in life.retried_ms)
    if life.first_run_ms is not None:
        yield life.first_run_ms, lambda row: row.waits.append(life.wait_ms)
    if life.finished_ms is not None:
        yield life.finished_ms, add("gone")
        if life.outcome in ("done", "dead"):
            yield life.finished_ms, add(life.outcome)
        if life.run_ms is not None:
            yield life.finished_ms, lambda row: row.runs.append(life.run_ms)


def _minute(at_ms: int) -> int:
    return at_ms - at_ms % MINUTE_MS
