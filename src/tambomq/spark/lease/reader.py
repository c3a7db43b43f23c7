"""`LeasedReader`: a queue as a Spark stream. Each micro-batch reads one claim of messages.

A *lease* is a query's name on a queue, and outlives its processes. A *claim* is the list of
messages of one batch; a lease has at most one open. Redis keeps the list, and the state of the
lease (its *ledger*), so a batch that is planned again after a crash has the same rows. A stream
offset is a claim's number and token.

Spark calls, in this order::

    latestOffset  driver     acknowledge the previous claim, make the next one
                             (Spark logs the offset)
    partitions    driver     cut the claim into slices
    read          executors  rows of a slice, then check that the claim is still ours
                             (the sink writes; `settle` may store verdicts)
                             (Spark logs the commit)
    commit        driver     acknowledge the claim, if no `latestOffset` has done so. Spark calls
                             `commit` after the next `latestOffset`, so it rarely has to

To acknowledge a claim is to delete its messages, except those that a verdict (`verdicts`) retries
or dead-letters. If the driver dies, the next one continues with the open claim:

- if the old one died before the offset was logged, `latestOffset` returns the same claim again;
- if it died before the commit was logged, `partitions` plans the same claim again;
- if it died later, `latestOffset` acknowledges the claim.

A query that is stopped in order leaves its last claim open in the same way, since Spark does not
report the commit of the last batch to a source. If it is not restarted before the messages are
visible again, others receive them once more.

The driver owns the lease (`holder`). Its owner token goes with each call and each row, and scripts
refuse an owner that was replaced. The sink is not fenced: a task that has passed its last check can
still write after its query was replaced, and the rows are delivered once more. Each effect happens
once only if the sink is idempotent: by the batch's number, or by the message's id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tambomq.bulk.lease_model import CHUNK, Claim, LeaseRequest, OpenClaim
from tambomq.errors import EntriesLost, LeaseLost
from tambomq.ids import letters
from tambomq.spark.core.batch import Decode, undecoded
from tambomq.spark.core.options import RedisTarget, SourceOptions
from tambomq.spark.core.paging import PageSizer, gc_disabled, split_large
from tambomq.spark.core.short_errors import one_line_errors
from tambomq.spark.lease.holder import LeaseHolder
from tambomq.spark.lease.leased_source import TAKEN, ClaimSlice, LeasedSource
from tambomq.store.sync import Store

OPTIONS: Final = ("lease", "leaseSeconds", "maxRowsPerBatch", "failOnDataLoss")
MAX_ROWS: Final = 50_000
"""Spark's own work for a batch is the same for few messages as for many: with 20,000 it took more
than half of the time. Larger batches hide more messages at once, and take longer to renew."""
LEASE_S: Final = 60
_TOKEN_LETTERS: Final = 12
_LARGEST_CLAIM: Final = 1_000_000
"""The limit of a batch where Spark sets none: its claim is a list in Redis."""


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Sizes and times of a leased stream."""

    partition_count: int = 2
    max_rows: int = MAX_ROWS
    """The largest number of rows in one batch."""
    lease_s: float = LEASE_S
    """After this time without a heartbeat another driver may take the lease; after twice this time
    other consumers may receive the messages. ChasquiMQ workers of the same group wait for 30 s
    only, whatever the lease says."""
    fail_on_loss: bool = True
    """Whether the query fails if others have received its messages; if not, ``fault`` says so.

    A message of RSMQ that was deleted while this query holds the lease is ``gone`` in either case:
    it was deleted on purpose, by an operator or by a consumer that had processed it."""


class ClaimPartition(InputPartition):
    """A slice of a claim for one task."""

    def __init__(self, request: LeaseRequest, part: ClaimSlice) -> None:
        self.request, self.part = request, part


class LeasedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams the messages of *queue* under the lease *lease*, and deletes committed batches."""

    def __init__(
        self,
        source: LeasedSource,
        target: RedisTarget,
        queue: str,
        lease: str,
        options: LeaseOptions,
        decode: Decode = undecoded,
    ) -> None:
        self._source, self._target, self._queue, self._lease = source, target, queue, lease
        self._options, self._decode = options, decode
        self._held: LeaseHolder | None = None
        self._budget: int | None = None

    @classmethod
    def from_options(cls, options: SourceOptions, source: LeasedSource, decode: Decode) -> Self:
        """Return the reader that the options describe; raise `SettingsError` for many queues."""
        selector = options.queue_selector()
        if selector.has_patterns or len(selector.names) != 1:
            raise options.wrong(
                "queue", "a single queue, since a lease is for one", options.text("queue")
            )
        lease_options = LeaseOptions(
            options.partition_count(),
            options.number("maxRowsPerBatch", MAX_ROWS),
            options.number("leaseSeconds", LEASE_S),
            options.flag("failOnDataLoss", default=True),
        )
        target, queue, lease = options.redis_target(), selector.names[0], options.text("lease")
        return cls(source, target, queue, lease, lease_options, decode)

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read: the lease stays with the driver.
        return {**self.__dict__, "_held": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
        """Return how many rows a batch may have."""
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (as above)
        """Limit this run to the messages that are available now."""
        with one_line_errors():
            holder = self._holder()
            self._budget = self._source.available(holder.store, self._queue, self._lease)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (as above)
        """Return the lease's last acknowledged claim: a new checkpoint continues from there."""
        with one_line_errors():
            return _offset(self._holder().acquire().acked, "")

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  (as above)
        """Acknowledge the claim of *start*, make the next one and return its offset.

        Returns *start* if the queue has nothing to claim.
        """
        with one_line_errors():
            holder = self._holder()
            holder.acquire()
            self._acknowledge(holder, start)
            ops = self._source.ops
            # No process cleans up after dead queries, so each live one does.
            holder.follow(ops.release_expired(self._queue, except_lease=self._lease))
            max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else _LARGEST_CLAIM
            if self._budget is not None:
                max_rows = min(max_rows, self._budget)
            number = start["claim"] + 1
            claim = self._claim(holder, number, max_rows)
            if not claim.size:
                return start
            if self._budget is not None:
                # Messages of a claim that was open already (`added` is 0) were not available.
                self._budget -= claim.added
            return _offset(number, claim.claim_token)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the claim of *end* in slices of equal size, one for each task."""
        with one_line_errors():
            number, token = end["claim"], end["mark"]
            if number == start["claim"]:
                return []
            holder = self._holder()
            state = holder.acquire()
            if (state.claim, state.claim_token) != (number, token):
                return self._no_partitions(number, "is no longer open")
            if holder.lost and self._options.fail_on_loss:
                return self._no_partitions(number, f"lacks {holder.lost} of its messages")
            if token == holder.inherited_claim_token:
                # The batch is run again, and may write other verdicts this time.
                holder.follow(self._source.ops.clear_verdicts(holder.request))
                holder.inherited_claim_token = ""
            size = holder.run(self._source.ops.claim_size(holder.request))
        claim = OpenClaim(holder.request.owner, number, token)
        count = self._options.partition_count
        edges = [size * each // count for each in range(count + 1)]
        return [
            ClaimPartition(holder.request, ClaimSlice(claim, low, high - low))
            for low, high in pairwise(edges)
            if high > low
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        task: Any = partition
        store = self._target.open()
        try:
            with one_line_errors(), gc_disabled():
                sizer, first = PageSizer(CHUNK), task.part.first
                end = first + task.part.count
                while first < end:
                    part = ClaimSlice(task.part.claim, first, min(sizer.count, end - first))
                    rows = self._rows(store, task.request, part)
                    first += part.count
                    sizer.note_size(rows.nbytes, rows.num_rows)
                    yield from map(self._decode, split_large(rows))
        finally:
            store.close()

    def _rows(self, store: Store, request: LeaseRequest, part: ClaimSlice) -> pa.RecordBatch:
        rows = self._source.rows(store, request, part)
        # Checked after reading: an owner that lost a claim never gets it back, so if it is ours
        # now, it was ours when the rows were read.
        now = store.run(self._source.ops.open_claim(request))
        if now != part.claim:
            why = f"claim {part.claim.number} is no longer open for this query"
            raise LeaseLost(self._queue, self._lease, why)
        if self._options.fail_on_loss and TAKEN in rows.column("fault").to_pylist():
            raise self._lost(part.claim.number, "has messages that others have received since")
        return rows

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge the claim of *end*; does nothing if that was done before."""
        with one_line_errors():
            holder = self._holder()
            holder.acquire()
            self._acknowledge(holder, end)

    def stop(self) -> None:
        """Give up the lease. The messages of an open claim stay hidden until they expire."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _holder(self) -> LeaseHolder:
        """Return our `LeaseHolder`, not acquired yet at first; raise `QueueNotFound`."""
        if self._held is None:
            holder = LeaseHolder(
                self._source.ops, self._target, self._queue, self._lease, self._options.lease_s
            )
            try:
                self._source.available(holder.store, self._queue, self._lease)
            except BaseException:
                holder.close()
                raise
            self._held = holder
        return self._held

    def _acknowledge(self, holder: LeaseHolder, offset: dict[str, Any]) -> None:
        number, token = offset["claim"], offset["mark"]
        if number:
            holder.follow(self._source.ops.acknowledge(holder.request, number, token))
            if holder.inherited_claim_token == token:
                # Now the inherited claim, whose messages were lost, is done. Until then Spark may
                # acknowledge an earlier claim again, which must not reset this.
                holder.lost = 0

    def _claim(self, holder: LeaseHolder, number: int, max_rows: int) -> Claim:
        ops, request, token = self._source.ops, holder.request, letters(_TOKEN_LETTERS)
        claim = holder.follow(ops.claim(request, number, token, max_rows))
        was_open = claim.size and not claim.added
        if was_open:
            # An earlier run made it and died before Spark logged the offset: no batch has read
            # it, so messages that others have received since are dropped, not reported as lost.
            holder.lost = 0
            remaining = holder.follow(ops.prune(request, claim.size))
            if remaining == 0:
                return self._claim(holder, number, max_rows)
        return claim

    def _no_partitions(self, number: int, why: str) -> list[InputPartition]:
        """Raise `EntriesLost`; with ``failOnDataLoss=false`` return no partitions instead."""
        if self._options.fail_on_loss:
            raise self._lost(number, why)
        return []

    def _lost(self, number: int, why: str) -> EntriesLost:
        return EntriesLost(
            self._queue,
            f"claim {number} of lease {self._lease!r} on queue {self._queue!r} {why}: this query "
            "was down for too long, or its checkpoint is older than the lease; others may have "
            "received its messages. With failOnDataLoss=false it goes on without them",
        )


def _offset(claim: int, claim_token: str) -> dict[str, Any]:
    """Return a stream offset. Checkpoints store it: the token's field is called ``mark``."""
    return {"claim": claim, "mark": claim_token}
