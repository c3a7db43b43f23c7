"""Workers, leases, peers and connections, and who leads: rows of the console's tables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tambomq.bulk.lease_model import LeaseInfo
from tambomq.bulk.lease_ops import LeaseAdminOps
from tambomq.chasqui.bulk import sample as chasqui_sample
from tambomq.chasqui.bulk.lease_admin import ChasquiLeaseAdminOps
from tambomq.chasqui.bulk.sample import ALIVE_MS, ConsumerState
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.keys import lessee
from tambomq.chasqui.options import CLAIM_IDLE_MS
from tambomq.console.model import LeaderRow, QueueRef, WorkerRow
from tambomq.console.read.trouble import SILENT_AFTER_S, SLOW_SHARE
from tambomq.console.words import count_text, duration_text
from tambomq.errors import StoreUnavailable, TamboError
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq.bulk import sample as gomq_sample
from tambomq.gomq.bulk.lease_admin import GomqLeaseAdminOps
from tambomq.gomq.bulk.sample import Receivers
from tambomq.gomq.model import PEER_TIMEOUT_S
from tambomq.kqueue.model import ConnectionInfo
from tambomq.rsmq.bulk.lease_admin import RsmqLeaseAdminOps
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

MAX_LEASED: Final = 50
"""Queues whose leases are listed."""


class WorkerDirectory:
    """Reads who works on queues. *rsmq_keys* are those of the namespace."""

    def __init__(self, store: AsyncStore, rsmq_keys: RsmqKeys) -> None:
        self._store, self._rsmq_keys = store, rsmq_keys

    async def workers(self, refs: Sequence[QueueRef], now_ms: int) -> list[WorkerRow]:
        """Return the workers, peers and leases of *refs*. Raises `StoreUnavailable`."""
        chasqui = [ref for ref in refs if ref.protocol == "chasqui"]
        gomq = [ref for ref in refs if ref.protocol == "gomq"]
        consumers = [chasqui_sample.consumers(ChasquiKeys(ref.name)) for ref in chasqui]
        receivers = [gomq_sample.receivers(ref.name) for ref in gomq]
        found = _readable(await self._store.outcomes([*consumers, *receivers]))
        rows = []
        for ref, states in zip(chasqui, found, strict=False):
            rows += [_worker_row(ref, each) for each in states or ()]
        for ref, each in zip(gomq, found[len(chasqui) :], strict=True):
            rows += _peer_rows(ref, each, now_ms)
        leases = await self._leases(refs, now_ms)
        # The consumer of a lease is the lease: one row is enough.
        leased = {(row.queue, lessee(row.id)) for row in leases}
        return [*(row for row in rows if (row.queue, row.id) not in leased), *leases]

    async def leaders(self, names: Sequence[str]) -> list[LeaderRow]:
        """Return who leads the ChasquiMQ queues *names*. Raises `StoreUnavailable`."""
        calls = [chasqui_sample.leaders(ChasquiKeys(name)) for name in names]
        found = _readable(await self._store.outcomes(calls))
        return [
            LeaderRow(queue=f"chasqui:{name}", promoter=pair[0], scheduler=pair[1])
            for name, pair in zip(names, found, strict=True)
            if pair is not None
        ]

    async def _leases(self, refs: Sequence[QueueRef], now_ms: int) -> list[WorkerRow]:
        stored = [ref for ref in refs if ref.protocol != "kqueue"]
        calls = [_count(self._leases_key(ref)) for ref in stored]
        counts = _readable(await self._store.outcomes(calls))
        leased = [ref for ref, count in zip(stored, counts, strict=True) if count][:MAX_LEASED]
        plans = [self._store.follow(self._lease_ops(ref).list_leases(ref.name)) for ref in leased]
        found = _readable(await asyncio.gather(*plans, return_exceptions=True))
        return [
            _lease_row(ref, lease, now_ms)
            for ref, leases in zip(leased, found, strict=True)
            for lease in leases or ()
        ]

    def _leases_key(self, ref: QueueRef) -> str:
        match ref.protocol:
            case "rsmq":
                return self._rsmq_keys.leases(ref.name)
            case "chasqui":
                return ChasquiKeys(ref.name).leases
            case _:
                return gomq_keys.leases(ref.name)

    def _lease_ops(self, ref: QueueRef) -> LeaseAdminOps:
        match ref.protocol:
            case "rsmq":
                return RsmqLeaseAdminOps(self._rsmq_keys)
            case "chasqui":
                return ChasquiLeaseAdminOps()
            case _:
                return GomqLeaseAdminOps()


def connection_rows(connections: Iterable[ConnectionInfo], limit_bytes: int) -> list[WorkerRow]:
    """Return the rows of KqueueMsgQ connections; those without a role are left out."""
    return [
        WorkerRow(
            queue="kqueue",
            id=each.address,
            kind="producer" if each.role == "producer" else "consumer",
            alive=True,
            holds=0,
            buffer_bytes=each.buffered_bytes,
            subscriptions=each.subscriptions,
            address=each.address,
            note=_connection_note(each, limit_bytes),
        )
        for each in connections
        if each.role
    ]


def _connection_note(connection: ConnectionInfo, limit_bytes: int) -> str:
    if connection.paused:
        return "The server reads nothing from it until a slow consumer has caught up."
    if connection.buffered_bytes >= SLOW_SHARE * limit_bytes:
        return "It reads slower than messages come."
    return ""


def _worker_row(ref: QueueRef, state: ConsumerState) -> WorkerRow:
    alive = state.idle_ms <= ALIVE_MS
    holds = state.pending
    rest_s = max(0, CLAIM_IDLE_MS - state.idle_ms) / 1000 if holds else None
    note = ""
    if not alive:
        note = f"It has not read for {duration_text(state.idle_ms / 1000)}."
        note += " Other workers take what it holds." if holds else ""
    return WorkerRow(
        queue=str(ref),
        id=state.name,
        kind="worker",
        alive=alive,
        holds=holds,
        idle_s=state.idle_ms / 1000,
        lease_s=rest_s,
        note=note,
    )


def _peer_rows(ref: QueueRef, receivers: Receivers | None, now_ms: int) -> Iterable[WorkerRow]:
    for row in receivers.rows if receivers else ():
        last = row.last_action_ms
        silence_s = None if last is None else max(0, now_ms - last) / 1000
        alive = silence_s is not None and silence_s < SILENT_AFTER_S
        waits = count_text(row.waiting, "message waits", "messages wait")
        note = f"Receives for the consumer {row.consumer}; {waits} for it."
        yield WorkerRow(
            queue=str(ref),
            id=row.peer,
            kind="peer",
            alive=alive,
            holds=row.handed,
            idle_s=silence_s,
            lease_s=None if silence_s is None else max(0.0, PEER_TIMEOUT_S - silence_s),
            note=note,
        )


def _lease_row(ref: QueueRef, lease: LeaseInfo, now_ms: int) -> WorkerRow:
    return WorkerRow(
        queue=str(ref),
        id=lease.name,
        kind="lease",
        alive=lease.state == "held",
        holds=lease.size,
        lease_s=max(0, lease.until_ms - now_ms) / 1000 if lease.until_ms else None,
        address=lease.holder,
        note=_LEASE_NOTES.get(lease.state, ""),
    )


_LEASE_NOTES: Final = {
    "away": "Its holder is gone; the next one goes on with the same messages.",
    "dead": "Its holder is gone, and others may have received its messages.",
    "free": "A Spark query has held it and may come back.",
}


def _count(key: str) -> Call[int]:
    return Call("SCARD", (key,), (), int, repeatable=True)


def _readable(outcomes: Iterable[Any]) -> list[Any]:
    """Return *outcomes* with `None` for damaged keys. Raises `StoreUnavailable`."""
    found = list(outcomes)
    for outcome in found:
        if isinstance(outcome, StoreUnavailable) or (
            isinstance(outcome, BaseException) and not isinstance(outcome, TamboError)
        ):
            raise outcome
    return [None if isinstance(outcome, TamboError) else outcome for outcome in found]
