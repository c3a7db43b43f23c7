"""RSMQ's messages under a lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tambomq.errors import QueueNotFound
from tambomq.rsmq import lease_ops, scan_ops
from tambomq.rsmq.keys import Keys
from tambomq.spark import schemas
from tambomq.spark.columns import Columns, constant
from tambomq.spark.lease import Places
from tambomq.spark.leased import TAKEN
from tambomq.spark.rsmq_tables import first_ms, sent_ms
from tambomq.store.call import Plan
from tambomq.store.ledger import Settled, Term, digest
from tambomq.store.sync import Store


@dataclass(frozen=True, slots=True)
class LeasedMessages:
    """Messages of one queue; *dead* is its dead-letter queue, '' for the usual one."""

    keys: Keys
    dead: str = ""

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.RSMQ_LEASED

    @property
    def ops(self) -> Any:
        """RSMQ's."""
        return lease_ops

    def waiting(self, store: Store, queue: str, lease: str) -> int:  # noqa: ARG002  (all have the same)
        """Return how many messages are visible; raise `QueueNotFound`."""
        if not store.run(scan_ops.exists(self.keys, queue)):
            raise QueueNotFound(queue)
        return store.run(scan_ops.count(self.keys, queue, "-inf", str(store.run(scan_ops.now()))))

    def acknowledge(self, term: Term, number: int, mark: str) -> Plan[Settled]:
        """End a claim."""
        return lease_ops.acknowledge(self.keys, term, number, mark, dead=self.dead)

    def rows(self, store: Store, term: Term, at: Places) -> pa.RecordBatch:
        """Return messages as they are now, in the order in which they were claimed."""
        members = store.run(lease_ops.members(self.keys, term, at.first, at.count))
        ids = [member.id for member in members]
        found = store.run(scan_ops.contents(self.keys, term.queue, ids)) if ids else []
        bodies, counts, firsts = found[::3], found[1::3], found[2::3]
        faults = [_fault(*each) for each in zip(members, bodies, counts, strict=True)]
        return self.columns.batch(
            queue=constant(term.queue, len(ids)),
            id=ids,
            body=[None if f == TAKEN else body for f, body in zip(faults, bodies, strict=True)],
            sent_at=sent_ms(ids),
            rc=[int(member.rc) for member in members],
            first_received_at=first_ms(firsts),
            claim=constant(at.claim, len(ids)),
            fault=faults,
        )


def _fault(member: lease_ops.Member, body: bytes | None, rc: bytes | None) -> str | None:
    if body is None:
        return "gone"
    if rc != member.rc:
        return TAKEN
    return None if digest(body) == member.digest else "changed"
