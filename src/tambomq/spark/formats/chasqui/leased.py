"""ChasquiMQ's jobs under a lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tambomq.chasqui import lease_ops, scan_ops
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.lease_ops import Group, Member
from tambomq.chasqui.wire import read_entry
from tambomq.spark import chasqui_rows, schemas
from tambomq.spark.columns import Columns, constant
from tambomq.spark.lease import Places
from tambomq.spark.leased import TAKEN
from tambomq.spark.stream_cuts import number, text
from tambomq.store.call import Plan
from tambomq.store.ledger import Settled, Term, digest
from tambomq.store.sync import Store


@dataclass(frozen=True, slots=True)
class LeasedJobs:
    """Jobs of one queue, for one group."""

    keys: Group

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.CHASQUI_LEASED

    @property
    def ops(self) -> Any:
        """ChasquiMQ's."""
        return lease_ops

    def waiting(self, store: Store, queue: str, lease: str) -> int:  # noqa: ARG002  (all have the same)
        """Return how many jobs there are, whoever has them: a queue needs no making."""
        return store.run(scan_ops.length(Keys(queue).stream))

    def acknowledge(self, term: Term, number: int, mark: str) -> Plan[Settled]:
        """End a claim."""
        return lease_ops.acknowledge(self.keys, term, number, mark)

    def rows(self, store: Store, term: Term, at: Places) -> pa.RecordBatch:
        """Return jobs as they are now, in the order in which they were claimed."""
        members = store.run(lease_ops.members(term, at.first, at.count))
        entries = [member.entry for member in members]
        ends = _ends(entries) if entries else ("-", "-")
        found = _entries(store, Keys(term.queue).stream, entries, ends)
        ours = self._held(store, term, entries, ends)
        faults = [_fault(member, found.get(member.entry), ours) for member in members]
        rows = [
            [entry.encode(), () if fault == TAKEN else found.get(entry, ())]
            for entry, fault in zip(entries, faults, strict=True)
        ]
        return self.columns.batch(
            queue=constant(term.queue, len(rows)),
            claim=constant(at.claim, len(rows)),
            fault=faults,
            **chasqui_rows.jobs(rows),
        )

    def _held(
        self, store: Store, term: Term, entries: Sequence[str], ends: tuple[str, str]
    ) -> set[str]:
        if not entries:
            return set()
        ours = store.run(lease_ops.held(self.keys, term, *ends))
        # Those that were taken over from others stand before, out of order: asked one by one.
        rest = [entry for entry in entries if entry not in ours]
        calls = [lease_ops.held(self.keys, term, entry, entry) for entry in rest]
        return ours.union(*store.run_all(calls)) if calls else ours


def _entries(
    store: Store, stream: str, entries: Sequence[str], ends: tuple[str, str]
) -> dict[str, Sequence[bytes]]:
    """Return the fields of those that are there."""
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
    places = [*map(number, entries)]
    return text(min(places)), text(max(places))


def _fault(member: Member, fields: Sequence[bytes] | None, ours: set[str]) -> str | None:
    if member.entry not in ours:
        return TAKEN
    if fields is None:
        return "gone"
    body = read_entry(fields)[0] or b""
    return None if digest(body).decode() == member.digest else "changed"
