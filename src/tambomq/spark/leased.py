"""A queue as a stream: each micro-batch is a claim, and is deleted once it is committed.

An offset is the number of a claim and its mark. What a claim has stands in a ledger beside the
queue, so a batch that is planned again after a crash has the same rows. A claim that is in no
offset log is handed out again; one that is in the commit log is acknowledged by the next call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tambomq.errors import EntriesLost, LeaseLost
from tambomq.ids import letters
from tambomq.spark.batch import Decode, as_it_is
from tambomq.spark.lease import Lease, Leased, Places
from tambomq.spark.options import Given, Place
from tambomq.spark.paging import Pace, bounded, undisturbed
from tambomq.spark.plain import told_in_one_line
from tambomq.store.ledger import CHUNK, Claim, Term
from tambomq.store.sync import Store

OPTIONS: Final = ("lease", "leaseSeconds", "maxRowsPerBatch", "failOnDataLoss")
MOST_ROWS: Final = 20_000
LEASE_S: Final = 60
TAKEN: Final = "taken"
"""The fault of a message that another consumer has received since."""
_MARK_LETTERS: Final = 12
_ALL: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a stream may take, and for how long."""

    parts: int = 2
    most_rows: int = MOST_ROWS
    """Of one batch."""
    lease_s: float = LEASE_S
    """A driver that is silent for so long may be replaced; after as long again, others have its
    messages."""
    fail_on_loss: bool = True
    """Whether messages that others have had end the query; else their rows say so."""


class Part(InputPartition):
    """Places of a claim for one task."""

    def __init__(self, term: Term, claim: int, mark: str, first: int, count: int) -> None:
        self.term, self.claim, self.mark, self.first, self.count = term, claim, mark, first, count


class LeasedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Hands out what *source* has under the lease *lease*, and deletes what is committed."""

    def __init__(
        self,
        source: Leased,
        place: Place,
        queue: str,
        lease: str,
        limits: Limits,
        decode: Decode = as_it_is,
    ) -> None:
        self._source, self._place, self._queue, self._name = source, place, queue, lease
        self._limits, self._decode = limits, decode
        self._lease: Lease | None = None
        self._budget: int | None = None

    @classmethod
    def given(cls, given: Given, source: Leased, decode: Decode) -> Self:
        """Return what the options ask for: one queue, and a lease."""
        wanted = given.wanted()
        if wanted.has_patterns or len(wanted.names) != 1:
            raise given.wrong("queue", "one queue where there is a lease", given.text("queue"))
        limits = Limits(
            given.parts(),
            given.number("maxRowsPerBatch", MOST_ROWS),
            given.number("leaseSeconds", LEASE_S),
            given.flag("failOnDataLoss", default=True),
        )
        return cls(source, given.place(), wanted.names[0], given.text("lease"), limits, decode)

    def __getstate__(self) -> dict[str, Any]:
        # A worker reads; the lease stays with the driver.
        return {**self.__dict__, "_lease": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
        """Return how many rows a batch may have."""
        return ReadMaxRows(self._limits.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (as above)
        """Remember how much there is: what comes later is for the next run."""
        with told_in_one_line():
            lease = self._held()
            self._budget = self._source.waiting(lease.store, self._queue, self._name)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (as above)
        """Return where the lease stands: a new checkpoint goes on from there."""
        with told_in_one_line():
            return {"claim": self._held().take().acked, "mark": ""}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  (as above)
        """Acknowledge what is committed and make the next claim; *start* if there is nothing."""
        with told_in_one_line():
            lease = self._held()
            lease.take()
            self._end(lease, start)
            ops, keys = self._source.ops, self._source.keys
            lease.follow(ops.release_expired(keys, self._queue, but=self._name))
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else _ALL
            if self._budget is not None:
                most = min(most, self._budget)
            claim = self._claimed(lease, start["claim"] + 1, most)
            if not claim.size:
                return start
            if self._budget is not None:
                self._budget -= claim.added
            return {"claim": start["claim"] + 1, "mark": claim.mark}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what each task reads: places of the claim, in equal numbers."""
        with told_in_one_line():
            if end["claim"] == start["claim"]:
                return []
            lease = self._held()
            standing = lease.take()
            if (standing.claim, standing.mark) != (end["claim"], end["mark"]):
                return self._missed(end["claim"], "was given up")
            if lease.lost and self._limits.fail_on_loss:
                return self._missed(end["claim"], f"lacks {lease.lost} of its messages")
            size = lease.run(self._source.ops.size(self._source.keys, lease.term))
        edges = [size * each // self._limits.parts for each in range(self._limits.parts + 1)]
        return [
            Part(lease.term, end["claim"], end["mark"], low, high - low)
            for low, high in pairwise(edges)
            if high > low
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        part: Any = partition
        store = self._place.open()
        try:
            with told_in_one_line(), undisturbed():
                pace, first, end = Pace(CHUNK), part.first, part.first + part.count
                while first < end:
                    count = min(pace.count, end - first)
                    rows = self._rows(store, part, first, count)
                    first += count
                    pace.note_size(rows.nbytes, rows.num_rows)
                    yield from map(self._decode, bounded(rows))
        finally:
            store.close()

    def _rows(self, store: Store, part: Part, first: int, count: int) -> pa.RecordBatch:
        rows = self._source.rows(store, part.term, Places(part.claim, part.mark, first, count))
        # After the rows, not before: then these were ours when they were read.
        now = store.run(self._source.ops.opened(self._source.keys, part.term))
        if (now.owner, now.claim, now.mark) != (part.term.owner, part.claim, part.mark):
            why = f"claim {part.claim} is another query's by now"
            raise LeaseLost(self._queue, self._name, why)
        if self._limits.fail_on_loss and TAKEN in rows.column("fault").to_pylist():
            raise self._lost(part.claim, "has messages that others have received since")
        return rows

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge all up to *end*; it may have been before."""
        with told_in_one_line():
            lease = self._held()
            lease.take()
            self._end(lease, end)

    def stop(self) -> None:
        """Let another query have the lease."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _held(self) -> Lease:
        if self._lease is None:
            lease = Lease(self._source, self._place, self._queue, self._name, self._limits.lease_s)
            try:
                self._source.waiting(lease.store, self._queue, self._name)
            except BaseException:
                lease.close()
                raise
            self._lease = lease
        return self._lease

    def _end(self, lease: Lease, offset: dict[str, Any]) -> None:
        if offset["claim"]:
            lease.follow(self._source.acknowledge(lease.term, offset["claim"], offset["mark"]))
            lease.lost = 0

    def _claimed(self, lease: Lease, number: int, most: int) -> Claim:
        ops, keys, mark = self._source.ops, self._source.keys, letters(_MARK_LETTERS)
        claim: Claim = lease.follow(ops.claim(keys, lease.term, number, mark, most))
        if claim.size and not claim.added:
            # Nobody has seen it: what others have had since can still be left out.
            lease.lost = 0
            if lease.follow(ops.prune(keys, lease.term, claim.size)) == 0:
                return self._claimed(lease, number, most)
        return claim

    def _missed(self, claim: int, why: str) -> list[InputPartition]:
        if self._limits.fail_on_loss:
            raise self._lost(claim, why)
        return []

    def _lost(self, claim: int, why: str) -> EntriesLost:
        return EntriesLost(
            self._queue,
            f"claim {claim} of lease {self._name!r} on queue {self._queue!r} {why}: this query "
            "was away for too long, and others may have its messages; "
            "with failOnDataLoss=false it goes on without them",
        )
