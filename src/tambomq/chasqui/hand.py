"""The entries a worker has in its hands: waiting, running, or ended and not yet settled.

They are renewed from outside the event loop, so that a handler that blocks it
does not lose its job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from tambomq.chasqui import worker_ops
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.worker_ops import Delivery, Seat
from tambomq.store.call import Plan, results
from tambomq.store.connect import Endpoint
from tambomq.store.heartbeat import Heartbeat, heartbeat

# Two renewals may fail before a lease runs out, and the third may be late. Three quarters of the
# lease are always left: the server's clock may be set forward by less without harm.
RENEWALS_PER_LEASE = 4
# A script that renews so many takes about a millisecond.
CHUNK = 500


class Lease(msgspec.Struct, frozen=True):
    """What `store.heartbeat` renews, where, and how often. Plain values, so that it pickles."""

    endpoint: Endpoint
    queue: str
    group: str
    consumer: str
    idle_ms: int

    @property
    def every_s(self) -> float:
        """How often to renew."""
        return self.idle_ms / 1000 / RENEWALS_PER_LEASE

    @property
    def what(self) -> str:
        """What is held, for log lines."""
        return f"queue {self.queue!r}"

    def renew(self, held: dict[str, str]) -> Plan[list[str]]:
        """Renew *held*; return the entries that are not ours any more."""
        seat, entries = Seat(Keys(self.queue), self.group, self.consumer), list(held)
        chunks = [entries[i : i + CHUNK] for i in range(0, len(entries), CHUNK)]
        outcomes = yield [worker_ops.renew(seat, chunk) for chunk in chunks]
        return [entry for lost in results(outcomes) for entry in lost]


class Hand:
    """Entries held, each once."""

    def __init__(self, how: str | None, lease: Lease) -> None:
        """Hold nothing yet; *how* says what renews: see `heartbeat`."""
        self._beat: Heartbeat = heartbeat(how, lease)
        self.idle_ms = lease.idle_ms
        """After so long a silence others may take what is held."""
        self.held: dict[str, int] = {}
        """How often each was delivered before."""
        self.room = asyncio.Event()
        """Set whenever there is room for more."""

    def take(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Hold *deliveries*; return those that were not held before.

        A server that heard nothing for too long delivers again what still runs here. Such an entry
        may have been another's for a while, and a renewal may have found that out: it is renewed
        from now on like all others. The count of deliveries tells the two apart, so that what a
        renewal under way says of the earlier one does not count for this one.
        """
        held = self.held
        fresh = [each for each in deliveries if each.entry not in held]
        for each in fresh:
            held[each.entry] = each.deliveries
        self._beat.hold({each.entry: str(each.deliveries) for each in deliveries})
        return fresh

    def let_go(self, entries: Iterable[str]) -> None:
        """Hold *entries* no more."""
        gone = list(entries)
        for entry in gone:
            self.held.pop(entry, None)
        self._beat.let_go(gone)
        self.room.set()

    def close(self) -> None:
        """Renew nothing any more; waits for the renewal under way."""
        self._beat.close()
