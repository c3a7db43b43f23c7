"""`LeasedKey`: rows of GOMQ messages, read under a lease."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from tambomq.bulk.lease_model import LeaseRequest
from tambomq.gomq import keys
from tambomq.gomq.bulk import scan as scan_ops
from tambomq.gomq.bulk.lease import GomqLeaseOps
from tambomq.spark.core import schemas
from tambomq.spark.core.columns import Columns, constant
from tambomq.spark.formats.gomq.columns import messages
from tambomq.spark.lease.leased_source import TAKEN, ClaimSlice
from tambomq.store.sync import Store


@dataclass(frozen=True, slots=True)
class LeasedKey:
    """Messages of one key, received by a consumer of the lease's own."""

    ops: GomqLeaseOps = field(default_factory=GomqLeaseOps)

    @property
    def columns(self) -> Columns:
        """The columns of a row."""
        return schemas.GOMQ_LEASED

    def available(self, store: Store, queue: str, lease: str) -> int:
        """Return how many messages wait in the main queue or for the lease; raise for a bad key."""
        keys.check_key(queue)
        consumer = keys.lessee(lease)
        lists = keys.queue(queue), keys.messages(queue, consumer, consumer)
        return sum(store.run_all([scan_ops.length(each) for each in lists]))

    def rows(self, store: Store, request: LeaseRequest, part: ClaimSlice) -> pa.RecordBatch:
        """Return messages in the order in which they were published."""
        first, count = part.first, part.count
        found = store.run(self.ops.members(request, part.claim.claim_token, first, count))
        # Fewer than asked for: the claim was taken away, and the rows say so.
        missing = [None] * (count - len(found))
        columns = {name: [*values, *missing] for name, values in messages(first, found).items()}
        return self.columns.batch(
            **{**columns, "position": range(first, first + count)},
            key=constant(request.queue, count),
            claim=constant(part.claim.encode(), count),
            fault=[*(None for _ in found), *(TAKEN for _ in missing)],
        )
