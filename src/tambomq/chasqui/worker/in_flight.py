"""The stream entries that a worker holds: queued, running, or finished and not yet settled.

Their leases are renewed by a heartbeat outside the event loop, so that a handler that blocks the
loop does not lose its job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.admin import release_dead
from tambomq.chasqui.ops.worker import ConsumerContext, Delivery
from tambomq.runtime.heartbeat import Heartbeat, heartbeat
from tambomq.store.call import Plan, results
from tambomq.store.endpoint import Endpoint

# Two renewals may fail before a lease runs out, and the third may be late. While none fails, three
# quarters of each lease are left, so it survives any shorter jump of the server's clock.
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

    def release(self) -> Plan[int]:
        """Give back what this consumer has, which is known to be dead; see `release_dead`."""
        context = ConsumerContext(Keys(self.queue), self.group, self.consumer)
        return release_dead(context, self.idle_ms)


class InFlight:
    """The entries in flight, each once.

    The fetcher adds them. The settler releases those that are settled, the handler pool those that
    it gives back or abandons, and `OutcomeReporter` those of cancelled jobs.
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

        If our lease ran out, the server may redeliver to us an entry that still runs here. It is
        not run again, but it is renewed again: a renewal may have reported it as lost meanwhile.
        The heartbeat gets the new delivery count. So if that report arrives only now, it is known
        to be about the earlier delivery, and does not end the renewal of this one.
        Here and in the pool the entry keeps the count of its first delivery, and is given back with
        it: this redelivery is not counted as an attempt.
        """
        entries = self.entries
        fresh = [each for each in deliveries if each.entry not in entries]
        for each in fresh:
            entries[each.entry] = each.deliveries
        self._heartbeat.hold({each.entry: str(each.deliveries) for each in deliveries})
        return fresh

    def release(self, entries: Iterable[str]) -> None:
        """Stop renewing *entries*; in Redis the settler ends them, or the pool gives them back."""
        released = list(entries)
        for entry in released:
            self.entries.pop(entry, None)
        self._heartbeat.let_go(released)
        self._on_released()

    def close(self) -> None:
        """Stop the heartbeat; waits for the renewal under way."""
        self._heartbeat.close()
