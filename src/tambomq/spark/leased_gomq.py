"""GOMQ's messages under a lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from tambomq.gomq import keys, lease_ops, scan_ops
from tambomq.gomq.model import Options
from tambomq.gomq.wire import Element
from tambomq.spark import schemas
from tambomq.spark.columns import Columns, constant
from tambomq.spark.gomq_dates import published_ms
from tambomq.spark.lease import Places
from tambomq.spark.leased import TAKEN
from tambomq.store.call import Plan
from tambomq.store.ledger import Settled, Term
from tambomq.store.sync import Store

_decode = msgspec.json.Decoder(Element).decode


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
        read = [_read(each) for each in found]
        gone = [None] * (at.count - len(found))
        good, wrong = [each for each, _ in read], [error for _, error in read]
        return self.columns.batch(
            key=constant(term.queue, at.count),
            position=list(range(at.first, at.first + at.count)),
            id=[*(each.id or None for each in good), *gone],
            timestamp=[*(each.timestamp or None for each in good), *gone],
            published_at=[*(published_ms(each.timestamp, each.id) for each in good), *gone],
            payload=[
                *(each.payload if error is None else None for each, error in read),
                *gone,
            ],
            error=[*wrong, *gone],
            raw=[
                *(each if error else None for each, error in zip(found, wrong, strict=True)),
                *gone,
            ],
            claim=constant(at.claim, at.count),
            fault=[*(None for _ in found), *(TAKEN for _ in gone)],
        )


def _read(element: bytes) -> tuple[Element, str | None]:
    try:
        return _decode(element), None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Element(), f"no message of GOMQ's: {error}"
