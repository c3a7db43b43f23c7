"""How a worker's messages stay hidden from others: the lease that a heartbeat renews."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tambomq.rsmq import settle_ops
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import Message
from tambomq.store.call import Plan
from tambomq.store.connect import Endpoint

# Two renewals may fail before a lease runs out, and the third may be late. Three quarters of the
# lease are always left: the server's clock may be set forward by less without harm.
RENEWALS_PER_LEASE = 4


class RsmqLease(msgspec.Struct, frozen=True):
    """Messages of *queue*, hidden for *vt* seconds at a time."""

    endpoint: Endpoint
    ns: str
    queue: str
    vt: float

    @property
    def every_s(self) -> float:
        """How often to renew."""
        return self.vt / RENEWALS_PER_LEASE

    @property
    def what(self) -> str:
        """The queue, for log lines."""
        return f"queue {self.queue!r}"

    def renew(self, held: dict[str, str]) -> Plan[list[str]]:
        """Hide *held*, receipts by id, anew; return the ids that are gone, or another's by now."""
        kept = yield from settle_ops.hide_batch(Keys(self.ns), self.queue, held.items(), self.vt)
        return [id for id, ours in zip(held, kept, strict=True) if not ours]


def receipts(messages: Iterable[Message]) -> dict[str, str]:
    """Return *messages* as a heartbeat holds them."""
    return {message.id: message.receipt for message in messages}
