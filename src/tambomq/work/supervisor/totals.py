"""The runs of all processes since the supervisor started, added up from their reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tambomq.work.messages import RunCounts


class TotalCounts:
    """Runs by queue and job. They never go down: a process that ends takes nothing with it."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], RunCounts] = {}

    def __iter__(self) -> Iterator[RunCounts]:
        return iter(self._counts.values())

    def add(self, reported: Iterable[RunCounts]) -> None:
        """Add what a process has counted since its last report."""
        for new in reported:
            key = (new.queue, new.job)
            if (sums := self._counts.setdefault(key, new)) is not new:
                _add(sums, new)


def _add(sums: RunCounts, new: RunCounts) -> None:
    for outcome, count in new.outcomes.items():
        sums.outcomes[outcome] = sums.outcomes.get(outcome, 0) + count
    sums.failures += new.failures
    sums.wait_buckets = [a + b for a, b in zip(sums.wait_buckets, new.wait_buckets, strict=True)]
    sums.run_buckets = [a + b for a, b in zip(sums.run_buckets, new.run_buckets, strict=True)]
    sums.wait_s += new.wait_s
    sums.run_s += new.run_s
