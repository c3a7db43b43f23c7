"""The visibility lease of a worker's messages, which a heartbeat renews."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import Message
from tambomq.rsmq.ops import settle as settle_ops
from tambomq.store.call import Plan
from tambomq.store.endpoint import Endpoint

# Two renewals may fail before a lease expires, and the third may be late. Three quarters of the
# lease are always left: the server's clock may be set forward by less than that without harm.
RENEWALS_PER_LEASE = 4


class RsmqLease(msgspec.Struct, frozen=True):
    """A lease on messages of *queue*: each renewal hides them for *vt* seconds."""

    endpoint: Endpoint
    ns: str
    queue: str
    vt: float

    @property
    def every_s(self) -> float:
        """Seconds between two renewals."""
        return self.vt / RENEWALS_PER_LEASE

    def renew(self, held: dict[str, str]) -> Plan[list[str]]:
        """Extend *held*, receipts by id; return the ids that are gone or were received again."""
        renewed = yield from settle_ops.hide_batch(Keys(self.ns), self.queue, held.items(), self.vt)
        return [id for id, is_renewed in zip(held, renewed, strict=True) if not is_renewed]


def receipts(messages: Iterable[Message]) -> dict[str, str]:
    """Return the receipts of *messages* by id, as a heartbeat needs them."""
    return {message.id: message.receipt for message in messages}
