"""`LeasedMessages`: rows of RSMQ messages, read under a lease."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tambomq.bulk.lease_model import LeaseRequest, body_digest
from tambomq.errors import QueueNotFound
from tambomq.rsmq.bulk import scan as scan_ops
from tambomq.rsmq.bulk.lease import ClaimedMessage, RsmqLeaseOps
from tambomq.rsmq.keys import Keys
from tambomq.spark.core import schemas
from tambomq.spark.core.columns import Columns, constant
from tambomq.spark.formats.rsmq.tables import first_ms, sent_ms
from tambomq.spark.lease.leased_source import TAKEN, ClaimSlice
from tambomq.store.sync import Store


@dataclass(frozen=True, slots=True)
class LeasedMessages:
    """Messages of queues in one namespace; *dead_queue* as in `RsmqLeaseOps`."""

    keys: Keys
    dead_queue: str = ""

    @property
    def columns(self) -> Columns:
        """The columns of a row."""
        return schemas.RSMQ_LEASED

    @property
    def ops(self) -> RsmqLeaseOps:
        """RSMQ's lease operations."""
        return RsmqLeaseOps(self.keys, self.dead_queue)

    def available(self, store: Store, queue: str, lease: str) -> int:  # noqa: ARG002  (GOMQ's needs it)
        """Return how many messages are visible; raise `QueueNotFound`."""
        if not store.run(scan_ops.exists(self.keys, queue)):
            raise QueueNotFound(queue)
        return store.run(scan_ops.count(self.keys, queue, "-inf", str(store.run(scan_ops.now()))))

    def rows(self, store: Store, request: LeaseRequest, part: ClaimSlice) -> pa.RecordBatch:
        """Return messages as they are now, in the order in which they were claimed."""
        members = store.run(self.ops.members(request, part.first, part.count))
        ids = [member.id for member in members]
        found = store.run(scan_ops.contents(self.keys, request.queue, ids)) if ids else []
        bodies, counts, firsts = found[::3], found[1::3], found[2::3]
        faults = [_fault(*each) for each in zip(members, bodies, counts, strict=True)]
        return self.columns.batch(
            queue=constant(request.queue, len(ids)),
            id=ids,
            body=[None if f == TAKEN else body for f, body in zip(faults, bodies, strict=True)],
            sent_at=sent_ms(ids),
            rc=[int(member.rc) for member in members],
            first_received_at=first_ms(firsts),
            claim=constant(part.claim.encode(), len(ids)),
            fault=faults,
        )


def _fault(member: ClaimedMessage, body: bytes | None, rc: bytes | None) -> str | None:
    if body is None:
        return "gone"
    if rc != member.rc:
        return TAKEN
    return None if body_digest(body) == member.digest else "changed"
