"""Reports runs to the observer of a worker: how each ended, as decided by Redis.

Redis may reject the outcome of a handler: the job was cancelled meanwhile, or another worker has
claimed it. So the end of a run is held here until Redis has answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter_ns
from typing import Final

import msgspec

from tambomq.chasqui.job import Envelope
from tambomq.failures import headline
from tambomq.runtime.observer import GuardedObserver, RunObserver, RunOutcome, RunRecord

LOST: Final = "another worker has claimed the job, or it was deleted"
UNANSWERED: Final = "the worker ended before the server took the outcome"


class Run(msgspec.Struct, gc=False):
    """A run of a handler that has begun."""

    entry: str
    envelope: Envelope
    name: str
    started_ns: int
    waited_ms: int = 0
    """Only known if there is an observer."""

    @property
    def took_us(self) -> int:
        """Microseconds since it began."""
        return (perf_counter_ns() - self.started_ns) // 1000


class ObservedRuns:
    """Reports the runs of one worker to an observer: the end of each that began, once."""

    def __init__(self, observer: RunObserver, queue: str) -> None:
        self._observer, self._queue = GuardedObserver(observer), queue
        self._held: dict[str, RunRecord] = {}
        """Runs whose outcome is on its way to Redis, by their entries."""

    def begin(self, id: str, name: str, attempt: int) -> None:
        """Report that a run begins."""
        self._observer.run_started(self._queue, id, name, attempt)

    def end(self, run: Run, outcome: RunOutcome, took_us: int, error: str = "") -> None:
        """Report the end of a run that needs no answer from Redis."""
        self._observer.run_ended(self._ended(run, outcome, took_us, error))

    def hold(self, run: Run, outcome: RunOutcome, took_us: int, error: str = "") -> None:
        """Keep the end of a run until Redis has accepted or rejected it."""
        self._held[run.entry] = self._ended(run, outcome, took_us, error)

    def settled(self, entries: Iterable[str]) -> None:
        """Report the ends of the runs of *entries*: Redis has accepted them."""
        for entry in entries:
            if (record := self._held.pop(entry, None)) is not None:
                self._observer.run_ended(record)

    def cancelled(self, reasons: Mapping[str, str]) -> None:
        """Report that the jobs of these entries were cancelled before they were settled."""
        for entry, reason in reasons.items():
            self._replace(entry, "cancelled", headline("CancelJob", reason))

    def lost(self, entries: Iterable[str]) -> None:
        """Report that Redis has rejected the outcomes of *entries*."""
        for entry in entries:
            self._replace(entry, "lost", LOST)

    def close(self) -> None:
        """Report the remaining runs as lost, when the worker has given up on reaching Redis."""
        for entry in list(self._held):
            self._replace(entry, "lost", UNANSWERED)

    def _replace(self, entry: str, outcome: RunOutcome, error: str) -> None:
        if (record := self._held.pop(entry, None)) is not None:
            changed = msgspec.structs.replace(record, outcome=outcome, error=error)
            self._observer.run_ended(changed)

    def _ended(self, run: Run, outcome: RunOutcome, took_us: int, error: str) -> RunRecord:
        envelope = run.envelope
        self._observer.handler_ended(self._queue, envelope.id)
        return RunRecord(
            *(self._queue, envelope.id, run.name, envelope.attempt + 1),
            *(outcome, run.waited_ms, took_us, error),
        )


def observed(observer: RunObserver | None, queue: str) -> ObservedRuns | None:
    """Return the runs for *observer* to see; `None` if there is none."""
    return None if observer is None else ObservedRuns(observer, queue)
