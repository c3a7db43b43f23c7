"""Leases on the queues of all protocols: finds, releases and deletes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final

import msgspec

from tambomq.bulk.lease_model import LeaseInfo
from tambomq.chasqui import keys as chasqui_keys
from tambomq.gomq import keys as gomq_keys
from tambomq.pipeline.address import Address
from tambomq.rsmq.keys import NAMESPACE, Keys
from tambomq.spark.core.cursors import pages
from tambomq.spark.lease.admin import SOURCES, Leases
from tambomq.store.call import Call
from tambomq.store.sync import Store

DEAD: Final = "dead"
_PAGE: Final = 1000


class LocatedLease(msgspec.Struct, frozen=True):
    """A lease and the address of its queue."""

    address: Address
    lease: LeaseInfo


class LeaseDirectory:
    """The leases on all queues of one server."""

    def __init__(self, store: Store, *, ns: str = NAMESPACE) -> None:
        self._store, rsmq = store, Keys(ns)
        self._of = {each: Leases(each, store.endpoint, ns=ns) for each in SOURCES}
        self._found_by = {
            "rsmq": (rsmq.any_leases, rsmq.leased),
            "chasqui": (chasqui_keys.ANY_LEASES, chasqui_keys.leased),
            "gomq": (f"{gomq_keys.LEASES}*", gomq_keys.leased),
        }

    def all(self) -> Iterator[LocatedLease]:
        """Yield all leases."""
        for protocol, (pattern, queue_of) in self._found_by.items():
            found = pages(self._store, partial(_page, pattern))
            texts = (key.decode("utf-8", "replace") for page in found for key in page)
            for queue in sorted({queue for text in texts if (queue := queue_of(text))}):
                yield from self.on(Address(protocol, queue))

    def on(self, address: Address) -> Iterator[LocatedLease]:
        """Yield the leases on one queue."""
        found = self._of[address.protocol].of(address.queue)
        yield from (LocatedLease(address, each) for each in found)

    def release(self, address: Address, lease: str) -> int:
        """Return the messages of a lease without a live holder to the queue; count them.

        Raises `LeaseTaken`.
        """
        return self._of[address.protocol].release(address.queue, lease)

    def forget(self, address: Address, lease: str, *, give_back: bool) -> bool:
        """Delete a lease; false if there is none. Raises `LeaseTaken`, `QueueError`."""
        return self._of[address.protocol].forget(address.queue, lease, give_back=give_back)

    def close(self) -> None:
        """Close the connections."""
        with ExitStack() as stack:
            for each in self._of.values():
                stack.callback(each.close)


def _page(pattern: str, cursor: bytes) -> Call[tuple[bytes, list[bytes]]]:
    words = (cursor, "MATCH", pattern, "COUNT", _PAGE, "TYPE", "set")
    return Call("SCAN", (), words, tuple, repeatable=True)
