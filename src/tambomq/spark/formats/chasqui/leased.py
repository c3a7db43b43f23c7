"""`LeasedJobs`: rows of ChasquiMQ jobs, read under a lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tambomq.bulk.lease_model import LeaseRequest, body_digest
from tambomq.chasqui.bulk import scan as scan_ops
from tambomq.chasqui.bulk.lease import ChasquiLeaseOps, ClaimedJob
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import read_entry
from tambomq.spark.core import schemas
from tambomq.spark.core.columns import Columns, constant
from tambomq.spark.core.stream_cuts import number, text
from tambomq.spark.formats.chasqui import columns as chasqui_rows
from tambomq.spark.lease.leased_source import TAKEN, ClaimSlice
from tambomq.store.sync import Store


@dataclass(frozen=True, slots=True)
class LeasedJobs:
    """Jobs of queues, for the consumer group of *ops*."""

    ops: ChasquiLeaseOps = field(default_factory=ChasquiLeaseOps)

    @property
    def columns(self) -> Columns:
        """The columns of a row."""
        return schemas.CHASQUI_LEASED

    def available(self, store: Store, queue: str, lease: str) -> int:  # noqa: ARG002  (GOMQ's needs it)
        """Return the length of the stream, pending jobs included; 0 for a queue without jobs."""
        return store.run(scan_ops.length(Keys(queue).stream))

    def rows(self, store: Store, request: LeaseRequest, part: ClaimSlice) -> pa.RecordBatch:
        """Return jobs as they are now, in the order in which they were claimed."""
        members = store.run(self.ops.members(request, part.first, part.count))
        entries = [member.entry for member in members]
        ends = _ends(entries) if entries else ("-", "-")
        found = _entries(store, Keys(request.queue).stream, entries, ends)
        ours = self._pending(store, request, entries, ends)
        faults = [_fault(member, found.get(member.entry), ours) for member in members]
        rows = [
            [entry.encode(), () if fault == TAKEN else found.get(entry, ())]
            for entry, fault in zip(entries, faults, strict=True)
        ]
        return self.columns.batch(
            queue=constant(request.queue, len(rows)),
            claim=constant(part.claim.encode(), len(rows)),
            fault=faults,
            **chasqui_rows.jobs(rows),
        )

    def _pending(
        self, store: Store, request: LeaseRequest, entries: Sequence[str], ends: tuple[str, str]
    ) -> set[str]:
        """Return those of *entries* that are still pending for the lease's consumer."""
        if not entries:
            return set()
        ours = store.run(self.ops.pending(request, *ends))
        # The range may hold more entries than one reply lists: ask for the others one by one.
        rest = [entry for entry in entries if entry not in ours]
        calls = [self.ops.pending(request, entry, entry) for entry in rest]
        return ours.union(*store.run_all(calls)) if calls else ours


def _entries(
    store: Store, stream: str, entries: Sequence[str], ends: tuple[str, str]
) -> dict[str, Sequence[bytes]]:
    """Return the fields of those *entries* that still exist, by id."""
    if not entries:
        return {}
    wanted = set(entries)
    page = store.run(scan_ops.page(stream, *ends, 2 * len(entries)))
    found = {id: fields for raw, fields in page if (id := raw.decode()) in wanted}
    rest = [entry for entry in entries if entry not in found]
    if rest:
        rows = store.run_all([scan_ops.entry(stream, entry.encode()) for entry in rest])
        found |= {id.decode(): fields for id, fields in rows if fields is not None}
    return found


def _ends(entries: Sequence[str]) -> tuple[str, str]:
    ids = [*map(number, entries)]
    return text(min(ids)), text(max(ids))


def _fault(member: ClaimedJob, fields: Sequence[bytes] | None, ours: set[str]) -> str | None:
    if member.entry not in ours:
        return TAKEN
    if fields is None:
        return "gone"
    body = read_entry(fields)[0] or b""
    return None if body_digest(body).decode() == member.digest else "changed"
