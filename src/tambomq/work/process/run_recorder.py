"""Counts the runs of a worker process, and knows which jobs are running.

It is the observer of all workers of the process. The workers call it on their event loop; the
thread that reports to the supervisor takes the counts.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from tambomq.runtime.forks import end_copy, forks
from tambomq.runtime.observer import RunRecord
from tambomq.work.messages import BUCKETS_S, MAX_NAMES, OTHER, RunCounts, RunningJob

_FAILED: Final = ("retried", "dead")


class RunRecorder:
    """Counts runs; calls *on_enough* once after *max_runs* of them."""

    def __init__(
        self,
        show: Callable[[RunRecord], None] | None = None,
        max_runs: int | None = None,
        on_enough: Callable[[], None] | None = None,
    ) -> None:
        """*show* is called with each run that ended."""
        self._show, self._on_enough = show, on_enough
        self._left = max_runs or 0
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], RunCounts] = {}
        self._names: dict[str, set[str]] = {}
        self._running: dict[tuple[str, str], tuple[str, float]] = {}
        self._forks = forks.count

    def run_started(self, queue: str, id: str, name: str, attempt: int) -> None:  # noqa: ARG002  (the observer's interface)
        """Note that a job runs."""
        self._running[queue, id] = (name, time.monotonic())

    def handler_ended(self, queue: str, id: str) -> None:
        """Note that a job does not run any more."""
        if forks.count != self._forks:
            # Of RSMQ: a ChasquiMQ worker looks by itself.
            end_copy(f"{queue} {id}")
        self._running.pop((queue, id), None)
        if self._left:
            self._left -= 1
            if not self._left and self._on_enough is not None:
                self._on_enough()

    def run_ended(self, record: RunRecord) -> None:
        """Count a run."""
        key = (record.queue, self._label(record.queue, record.name))
        wait_s, run_s = record.waited_ms / 1e3, record.took_us / 1e6
        with self._lock:
            if (counts := self._counts.get(key)) is None:
                counts = self._counts[key] = _empty(*key)
            counts.outcomes[record.outcome] = counts.outcomes.get(record.outcome, 0) + 1
            if record.error and record.outcome in _FAILED:
                counts.failures += 1
            counts.wait_buckets[bisect_left(BUCKETS_S, wait_s)] += 1
            counts.run_buckets[bisect_left(BUCKETS_S, run_s)] += 1
            counts.wait_s += wait_s
            counts.run_s += run_s
        if self._show is not None:
            self._show(record)

    def take(self) -> list[RunCounts]:
        """Return what was counted since the last call. From any thread."""
        with self._lock:
            counts, self._counts = self._counts, {}
        return list(counts.values())

    def oldest(self) -> RunningJob | None:
        """Return the job that has been running longest. From any thread."""
        # The dictionary keeps the order in which runs began. The event loop may change it
        # meanwhile: then there is a next time.
        try:
            (queue, id), (name, since) = next(iter(self._running.items()))
        except (StopIteration, RuntimeError):
            return None
        return RunningJob(queue, id, name, round(time.monotonic() - since, 3))

    def _label(self, queue: str, name: str) -> str:
        names = self._names.setdefault(queue, set())
        if name not in names:
            if len(names) >= MAX_NAMES:
                return OTHER
            names.add(name)
        return name


def _empty(queue: str, job: str) -> RunCounts:
    size = len(BUCKETS_S) + 1
    return RunCounts(queue, job, {}, 0, [0] * size, 0.0, [0] * size, 0.0)
