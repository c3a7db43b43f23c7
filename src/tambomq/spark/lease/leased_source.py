"""`LeasedSource`: a protocol's messages as rows, read under a lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from tambomq.bulk.lease_model import LeaseRequest, OpenClaim
from tambomq.bulk.lease_ops import LeaseOps
from tambomq.spark.core.columns import Columns
from tambomq.store.sync import Store

TAKEN: Final = "taken"
"""In the column ``fault``: another consumer has received the message since it was claimed."""


@dataclass(frozen=True, slots=True)
class ClaimSlice:
    """Consecutive messages of one claim."""

    claim: OpenClaim
    """The claim, and the owner that reads it."""
    first: int
    """Offset of the first message in the claim, from 0."""
    count: int


class LeasedSource(Protocol):
    """What a format implements to be read under a lease. Plain values: it is pickled to workers."""

    @property
    def columns(self) -> Columns:
        """The columns of a row."""

    @property
    def ops(self) -> LeaseOps:
        """The protocol's lease operations."""

    def available(self, store: Store, queue: str, lease: str) -> int:
        """Return how many messages could be claimed now; raise if the queue does not exist."""

    def rows(self, store: Store, request: LeaseRequest, part: ClaimSlice) -> pa.RecordBatch:
        """Return messages of the open claim.

        The column ``claim`` is ``part.claim``, encoded: the fencing token that `settle` sends back.
        The column ``fault`` is null, or says how a message differs from when it was claimed:
        ``gone``, ``changed`` or `TAKEN`.
        """
