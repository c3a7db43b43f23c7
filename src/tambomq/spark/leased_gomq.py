"""GOMQ's messages under a lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tambomq.gomq import keys, lease_ops, scan_ops
from tambomq.gomq.model import Options
from tambomq.spark import schemas
from tambomq.spark.columns import Columns, constant
from tambomq.spark.gomq_rows import messages
from tambomq.spark.lease import Places
from tambomq.spark.leased import TAKEN
from tambomq.store.call import Plan
from tambomq.store.ledger import Settled, Term
from tambomq.store.sync import Store


@dataclass(frozen=True, slots=True)
class LeasedKey:
    """Messages of one key, received by a consumer of the lease's own."""

    keys: Options

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.GOMQ_LEASED

    @property
    def ops(self) -> Any:
        """GOMQ's."""
        return lease_ops

    def waiting(self, store: Store, queue: str, lease: str) -> int:
        """Return how many messages wait for everybody, or for the lease: a key needs no making."""
        keys.check_key(queue)
        who = keys.lessee(lease)
        lists = keys.queue(queue), keys.messages(queue, who, who)
        return sum(store.run_all([scan_ops.length(each) for each in lists]))

    def acknowledge(self, term: Term, number: int, mark: str) -> Plan[Settled]:
        """End a claim."""
        return lease_ops.acknowledge(self.keys, term, number, mark)

    def rows(self, store: Store, term: Term, at: Places) -> pa.RecordBatch:
        """Return messages in the order in which they were published."""
        found = store.run(lease_ops.members(term, at.mark, at.first, at.count))
        gone = [None] * (at.count - len(found))
        told = {name: [*values, *gone] for name, values in messages(at.first, found).items()}
        return self.columns.batch(
            **{**told, "position": range(at.first, at.first + at.count)},
            key=constant(term.queue, at.count),
            claim=constant(at.claim, at.count),
            fault=[*(None for _ in found), *(TAKEN for _ in gone)],
        )
