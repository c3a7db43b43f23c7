"""The leases on queues, for people: who has them, and what to do about those nobody has."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tambomq.chasqui import lease_admin_ops as chasqui_ops
from tambomq.chasqui.keys import GROUP
from tambomq.chasqui.lease_ops import Group
from tambomq.errors import SettingsError
from tambomq.gomq import lease_admin_ops as gomq_ops
from tambomq.gomq.model import Options
from tambomq.rsmq import lease_admin_ops as rsmq_ops
from tambomq.rsmq.keys import NAMESPACE, Keys
from tambomq.spark import alive
from tambomq.store.connect import URL, Endpoint
from tambomq.store.ledger import Holding
from tambomq.store.sync import Store

SOURCES: Final = ("rsmq", "chasqui", "gomq")


class Leases:
    """The leases of one protocol on one server."""

    def __init__(
        self, source: str, url: str | Endpoint = URL, *, ns: str = NAMESPACE, group: str = GROUP
    ) -> None:
        """Remember where to look; *ns* is for ``rsmq``, *group* for ``chasqui``."""
        self._ops: Any
        self._keys: Any
        if source == "rsmq":
            self._ops, self._keys = rsmq_ops, Keys(ns)
        elif source == "chasqui":
            self._ops, self._keys = chasqui_ops, Group(group)
        elif source == "gomq":
            self._ops, self._keys = gomq_ops, Options()
        else:
            raise SettingsError(f"source must be one of {', '.join(SOURCES)}, not {source!r}")
        self._store = Store(url)

    def of(self, queue: str) -> list[Holding]:
        """Return the leases on *queue*, by name."""
        found: list[Holding] = self._store.follow(self._ops.listed(self._keys, queue))
        return [_as_seen_from_here(each) for each in found]

    def release(self, queue: str, lease: str) -> int:
        """Give what a query that is gone had claimed back to everybody, now; how many messages.

        Raises `LeaseTaken` while it is alive, or may be: on another machine, until its lease ends.
        """
        plan = self._ops.release(self._keys, queue, lease, gone=self._gone(queue, lease))
        given: int = self._store.follow(plan)
        return given

    def forget(self, queue: str, lease: str, *, give_back: bool = False) -> bool:
        """Remove a lease for good; false if there is none.

        Raises `LeaseTaken` while it is alive, and `QueueError` while a claim is open, unless
        *give_back* lets everybody have its messages first.
        """
        gone = self._gone(queue, lease)
        plan = self._ops.forget(self._keys, queue, lease, give_back=give_back, gone=gone)
        forgotten: bool = self._store.follow(plan)
        return forgotten

    def _gone(self, queue: str, lease: str) -> str:
        """Return who had the lease, if that is a process of this machine that is no more."""
        found: list[Holding] = self._store.follow(self._ops.listed(self._keys, queue))
        holders = (each.holder for each in found if each.name == lease)
        return next(filter(alive.is_gone, holders), "")

    def close(self) -> None:
        """Hang up."""
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


def _as_seen_from_here(lease: Holding) -> Holding:
    """Return *lease*; a holder on this machine can be seen to be dead before its lease ends."""
    if lease.state != "held" or not alive.is_gone(lease.holder):
        return lease
    return msgspec.structs.replace(lease, state="away" if lease.claim else "free")
