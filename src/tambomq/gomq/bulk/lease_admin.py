"""`GomqLeaseAdminOps`: operators' commands on GOMQ leases (see `tambomq.bulk.lease_ops`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tambomq.bulk import lease_calls, lease_model
from tambomq.bulk.lease_model import LeaseInfo
from tambomq.gomq import keys
from tambomq.gomq.bulk.lease import claim_size, release_if_expired
from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.store.call import Call, Plan, load_script, results

if TYPE_CHECKING:
    from tambomq.bulk.lease_ops import LeaseAdminOps

_GIVE_BACK = load_script("tambomq.gomq.bulk", "lease_give_back")


@dataclass(frozen=True, slots=True)
class GomqLeaseAdminOps:
    """Operators' commands on the leases of one service; a *queue* is a key."""

    options: Options = field(default_factory=Options)

    def list_leases(self, queue: str) -> Plan[list[LeaseInfo]]:
        """Return the leases on the key *queue*, by name."""

        def look_up(lease: str) -> tuple[str, Call[int]]:
            return keys.ledger(queue, lease), claim_size(queue, lease)

        return lease_calls.list_leases(keys.leases(queue), look_up)

    def release(self, queue: str, lease: str, *, dead_holder: str = "") -> Plan[int]:
        """Put the claimed messages of a lease without a live holder back; how many it had.

        Messages that other consumers have received too do not return to the main queue. Raises
        `LeaseTaken` while the lease is held, unless by *dead_holder*.
        """
        consumer = keys.lessee(lease)
        call_keys = (keys.last_action(consumer), keys.ledger(queue, lease))
        args = (message_ops.last_action_ttl_s(self.options), dead_holder)
        decode = partial(lease_model.require_unheld, queue, lease)
        call = Call(_GIVE_BACK, call_keys, args, decode, repeatable=True)
        size = int(results((yield (call,)))[0][0])
        if results((yield (release_if_expired(queue, lease),)))[0]:
            yield from leave_ops.reap(consumer, self.options)
        return size

    def forget(
        self, queue: str, lease: str, *, give_back: bool = False, dead_holder: str = ""
    ) -> Plan[bool]:
        """Delete a lease, and its subscription; false if there is none.

        Messages that waited for it alone return to the main queue. Raises `LeaseTaken` while it
        is held, and `QueueError` while a claim is open, unless *give_back* releases its messages
        first.
        """
        if give_back:
            yield from self.release(queue, lease, dead_holder=dead_holder)
        lease_keys = (keys.leases(queue), keys.ledger(queue, lease))
        call = lease_calls.forget(lease_keys, queue, lease, dead_holder)
        existed: bool = results((yield (call,)))[0]
        yield from leave_ops.unsubscribe(queue, keys.lessee(lease))
        return existed


if TYPE_CHECKING:
    _checked: type[LeaseAdminOps] = GomqLeaseAdminOps
