"""The runs of all processes since the supervisor started, added up from their reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tambomq.work.messages import MAX_NAMES, OTHER, RunCounts


class TotalCounts:
    """Runs by queue and job. They never go down: a process that ends takes nothing with it."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], RunCounts] = {}
        self._names: Counter[str] = Counter()

    def __iter__(self) -> Iterator[RunCounts]:
        return iter(self._counts.values())

    def add(self, reported: Iterable[RunCounts]) -> None:
        """Add what a process has counted since its last report."""
        for new in reported:
            # A process counts so many names; one after the other they may know any number.
            if self._is_full(new.queue, new.job):
                new.job = OTHER
            key = (new.queue, new.job)
            if (sums := self._counts.setdefault(key, new)) is not new:
                _add(sums, new)
            elif new.job != OTHER:
                self._names[new.queue] += 1

    def _is_full(self, queue: str, job: str) -> bool:
        return (queue, job) not in self._counts and self._names[queue] >= MAX_NAMES


def _add(sums: RunCounts, new: RunCounts) -> None:
    for outcome, count in new.outcomes.items():
        sums.outcomes[outcome] = sums.outcomes.get(outcome, 0) + count
    sums.failures += new.failures
    sums.wait_buckets = [a + b for a, b in zip(sums.wait_buckets, new.wait_buckets, strict=True)]
    sums.run_buckets = [a + b for a, b in zip(sums.run_buckets, new.run_buckets, strict=True)]
    sums.wait_s += new.wait_s
    sums.run_s += new.run_s
