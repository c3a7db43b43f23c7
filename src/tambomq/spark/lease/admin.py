"""`Leases`: lists, releases and deletes the leases on queues, for operators."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import msgspec

from tambomq.bulk.lease_model import LeaseInfo
from tambomq.bulk.lease_ops import LeaseAdminOps
from tambomq.chasqui.bulk.lease_admin import ChasquiLeaseAdminOps
from tambomq.chasqui.keys import GROUP
from tambomq.errors import SettingsError
from tambomq.gomq.bulk.lease_admin import GomqLeaseAdminOps
from tambomq.rsmq.bulk.lease_admin import RsmqLeaseAdminOps
from tambomq.rsmq.keys import NAMESPACE, Keys
from tambomq.spark.lease import process_identity
from tambomq.store.endpoint import URL, Endpoint
from tambomq.store.sync import Store

SOURCES: Final = ("rsmq", "chasqui", "gomq")


class Leases:
    """The leases of one protocol on one server."""

    def __init__(
        self, source: str, url: str | Endpoint = URL, *, ns: str = NAMESPACE, group: str = GROUP
    ) -> None:
        """Open a store for *source*; *ns* is for ``rsmq``, *group* for ``chasqui``.

        Raises `SettingsError` if *source* is not in `SOURCES`.
        """
        self._ops = _admin_ops(source, ns, group)
        self._store = Store(url)

    def of(self, queue: str) -> list[LeaseInfo]:
        """Return the leases on *queue*, by name."""
        return [_as_seen_from_here(each) for each in self._list(queue)]

    def release(self, queue: str, lease: str) -> int:
        """Put the messages claimed by a dead query back on the queue; return their number.

        Raises `LeaseTaken` while the query is alive. A query on another machine counts as alive
        until its hold on the lease expires.
        """
        dead_holder = self._dead_holder(queue, lease)
        return self._store.follow(self._ops.release(queue, lease, dead_holder=dead_holder))

    def forget(self, queue: str, lease: str, *, give_back: bool = False) -> bool:
        """Delete a lease; return whether there was one.

        Raises `LeaseTaken` while it is held, and `QueueError` while a claim is open, unless
        *give_back* returns its messages to the queue first.
        """
        dead_holder = self._dead_holder(queue, lease)
        plan = self._ops.forget(queue, lease, give_back=give_back, dead_holder=dead_holder)
        return self._store.follow(plan)

    def _list(self, queue: str) -> list[LeaseInfo]:
        return self._store.follow(self._ops.list_leases(queue))

    def _dead_holder(self, queue: str, lease: str) -> str:
        """Return the lease's holder if that is a dead process of this machine, else ''."""
        holders = (each.holder for each in self._list(queue) if each.name == lease)
        return next(filter(process_identity.is_dead, holders), "")

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _admin_ops(source: str, ns: str, group: str) -> LeaseAdminOps:
    if source == "rsmq":
        return RsmqLeaseAdminOps(Keys(ns))
    if source == "chasqui":
        return ChasquiLeaseAdminOps(group)
    if source == "gomq":
        return GomqLeaseAdminOps()
    raise SettingsError(f"source must be one of {', '.join(SOURCES)}, not {source!r}")


def _as_seen_from_here(lease: LeaseInfo) -> LeaseInfo:
    """Return *lease*; if its holder is a dead process of this machine, with the state corrected.

    Redis counts such a lease as held until the hold expires. Here it is "away" if it has an open
    claim that nobody reads, else "free".
    """
    if lease.state != "held" or not process_identity.is_dead(lease.holder):
        return lease
    return msgspec.structs.replace(lease, state="away" if lease.claim else "free")
