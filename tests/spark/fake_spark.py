"""A driver as Spark's is, seen from a source: an offset log, a commit log and a sink of files.

It can die at any of its steps and at any call to the server. What it leaves is what a real one
leaves: its logs, and what its sink has committed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pyspark.sql.streaming.datasource import ReadMaxRows

from tambomq.spark.lease.reader import LeasedReader
from tambomq.store.call import Call, Outcome, results
from tambomq.store.sync import Store

T = TypeVar("T")


class DriverCrash(BaseException):
    """Raised in place of a crash of the driver."""


@dataclass
class StepsUntilCrash:
    """Counts steps until the driver crashes; the last one may succeed with its reply lost."""

    steps: int = 1_000_000
    does_the_last: bool = True

    def step(self, act: Callable[[], Any] = lambda: None) -> Any:
        self.steps -= 1
        if self.steps < 0:
            raise DriverCrash
        if self.steps == 0 and self.does_the_last:
            act()
            raise DriverCrash
        return act()


class CrashingStore(Store):
    """A store whose process may crash at any round trip."""

    crash: StepsUntilCrash

    def run(self, call: Call[T]) -> T:
        """Make *call*, unless the process has crashed."""
        result: T = results(self.outcomes((call,)))[0]
        return result

    def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        """Make *calls*, unless the process has crashed."""
        outcomes: list[Outcome] = self.crash.step(
            lambda: super(CrashingStore, self).outcomes(calls)
        )
        return outcomes


@dataclass(frozen=True)
class CrashingTarget:
    """The Redis target of one process, which may crash."""

    url: str
    crash: StepsUntilCrash

    def open(self) -> Store:
        store = CrashingStore(self.url)
        store.crash = self.crash
        return store

    def open_for_renewals(self, every_s: float) -> Store:  # noqa: ARG002  (as of a real one)
        return self.open()


@dataclass
class Checkpoint:
    """What outlives a driver."""

    offsets: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    commits: int = 0
    sink: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for rows in self.sink.values() for row in rows]


def run_until_empty(
    reader: LeasedReader, checkpoint: Checkpoint, crash: StepsUntilCrash, max_count: int = 10
) -> None:
    """Go on from *checkpoint* as Spark does with ``availableNow``; may raise `DriverCrash`."""
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    if checkpoint.offsets:
        number = len(checkpoint.offsets) - 1
        if checkpoint.commits <= number:
            _run_batch(reader, checkpoint, crash, number)
        start = checkpoint.offsets[-1][1]
    while True:
        end = reader.latestOffset(start, ReadMaxRows(max_count))
        if end == start:
            return
        crash.step(partial(checkpoint.offsets.append, (start, end)))
        number = len(checkpoint.offsets) - 1
        if number:
            reader.commit(checkpoint.offsets[number - 1][1])
        _run_batch(reader, checkpoint, crash, number)
        start = end


def _run_batch(
    reader: LeasedReader, checkpoint: Checkpoint, crash: StepsUntilCrash, number: int
) -> None:
    rows = read(reader, *checkpoint.offsets[number])
    crash.step(lambda: checkpoint.sink.setdefault(number, rows))

    def commit() -> None:
        checkpoint.commits = number + 1

    crash.step(commit)


def read(reader: LeasedReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a batch, read by workers that have only what is sent to them."""
    rows: list[dict[str, Any]] = []
    for part in reader.partitions(start, end):
        read_there, part_there = pickle.loads(pickle.dumps((reader.read, part)))  # noqa: S301  (ours)
        for batch in read_there(part_there):
            assert batch.schema == reader._source.columns.arrow
            rows += batch.to_pylist()
    return rows


def die(reader: LeasedReader) -> None:
    """Kill the driver: its lease is not released."""
    holder, reader._held = reader._held, None
    if holder is not None:
        holder._stopped.set()
        if holder._is_acquired:
            holder._thread.join()
        holder.store.close()
