"""The stream entries that a worker holds: queued, running, or finished and not yet settled.

Their leases are renewed by a heartbeat outside the event loop, so that a handler that blocks the
loop does not lose its job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext, Delivery
from tambomq.runtime.heartbeat import Heartbeat, heartbeat
from tambomq.store.call import Plan, results
from tambomq.store.endpoint import Endpoint

# Two renewals may fail before a lease runs out, and the third may be late. While none fails, three
# quarters of the lease are left: the server's clock may be set forward by less without harm.
RENEWALS_PER_LEASE = 4
# Entries that one script renews; that takes about a millisecond.
CHUNK = 500


class EntryLease(msgspec.Struct, frozen=True):
    """How the heartbeat renews this worker's entries. Plain values: it is pickled to a process."""

    endpoint: Endpoint
    queue: str
    group: str
    consumer: str
    idle_ms: int
    """The length of a lease: an entry not renewed for this long may be claimed by others."""

    @property
    def every_s(self) -> float:
        """Seconds between two renewals."""
        return self.idle_ms / 1000 / RENEWALS_PER_LEASE

    def renew(self, held: dict[str, str]) -> Plan[list[str]]:
        """Renew *held*; return the entries that this consumer does not own any more."""
        context, entries = ConsumerContext(Keys(self.queue), self.group, self.consumer), list(held)
        chunks = [entries[i : i + CHUNK] for i in range(0, len(entries), CHUNK)]
        outcomes = yield [worker_ops.renew(context, chunk) for chunk in chunks]
        return [entry for lost in results(outcomes) for entry in lost]


class InFlight:
    """The entries in flight, each once.

    The fetcher adds them. The settler releases those that are settled, the handler pool those that
    it gives back.
    """

    def __init__(
        self,
        lease: EntryLease,
        heartbeat_kind: str | None,
        on_released: Callable[[], None],
    ) -> None:
        """Start the heartbeat (see `heartbeat`); *on_released* is called after each `release`."""
        self._heartbeat: Heartbeat = heartbeat(heartbeat_kind, lease)
        self._on_released = on_released
        self.idle_ms = lease.idle_ms
        """How long a lease lasts."""
        self.entries: dict[str, int] = {}
        """Entry ids, each with the delivery count that the server reported with it."""

    def add(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Hold *deliveries* and renew them; return those that were not in flight before.

        If our lease ran out, the server may redeliver to us an entry that still runs here. It must
        not run twice, but it must be renewed again: a renewal may have found it lost meanwhile.
        The delivery count tells the two apart: a late answer about the earlier delivery does not
        end the renewal of this one.
        """
        entries = self.entries
        fresh = [each for each in deliveries if each.entry not in entries]
        for each in fresh:
            entries[each.entry] = each.deliveries
        self._heartbeat.hold({each.entry: str(each.deliveries) for each in deliveries})
        return fresh

    def release(self, entries: Iterable[str]) -> None:
        """Stop renewing *entries*: they are settled, or given back."""
        released = list(entries)
        for entry in released:
            self.entries.pop(entry, None)
        self._heartbeat.let_go(released)
        self._on_released()

    def close(self) -> None:
        """Stop the heartbeat; waits for the renewal under way."""
        self._heartbeat.close()
