"""`RsmqLeaseAdminOps`: operators' commands on RSMQ leases (see `tambomq.bulk.lease_ops`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tambomq.bulk import lease_calls, lease_model
from tambomq.bulk.lease_model import CHUNK, LeaseInfo
from tambomq.rsmq.bulk.lease import release_if_expired
from tambomq.rsmq.keys import Keys
from tambomq.store.call import Call, Plan, load_script, results

if TYPE_CHECKING:
    from tambomq.bulk.lease_ops import LeaseAdminOps

_GIVE_BACK = load_script("tambomq.rsmq.bulk", "lease_give_back")


@dataclass(frozen=True, slots=True)
class RsmqLeaseAdminOps:
    """Operators' commands on the leases of one namespace."""

    keys: Keys

    def list_leases(self, queue: str) -> Plan[list[LeaseInfo]]:
        """Return the leases on *queue*, by name."""

        def look_up(lease: str) -> tuple[str, Call[int]]:
            size = Call("LLEN", (self.keys.members(queue, lease),), (), int, repeatable=True)
            return self.keys.ledger(queue, lease), size

        return lease_calls.list_leases(self.keys.leases(queue), look_up)

    def release(self, queue: str, lease: str, *, dead_holder: str = "") -> Plan[int]:
        """Make the claimed messages of a lease without a live holder visible; how many.

        If its query restarts, it finds them lost. Raises `LeaseTaken` while the lease is
        held, unless by *dead_holder*.
        """
        keys = self.keys
        claim = keys.ledger(queue, lease), keys.members(queue, lease)
        step_keys = (*keys.of(queue), *claim, keys.receipts(queue))
        decode = partial(lease_model.require_unheld, queue, lease)

        def give_back(first: int) -> Call[Any]:
            args = (first, CHUNK, dead_holder)
            return Call(_GIVE_BACK, step_keys, args, decode, repeatable=True)

        count = yield from lease_calls.sum_over_members(give_back)
        results((yield (release_if_expired(keys, queue, lease),)))
        return count

    def forget(
        self, queue: str, lease: str, *, give_back: bool = False, dead_holder: str = ""
    ) -> Plan[bool]:
        """Delete a lease; false if there is none.

        Raises `LeaseTaken` while it is held, and `QueueError` while a claim is open, unless
        *give_back* releases its messages first.
        """
        if give_back:
            yield from self.release(queue, lease, dead_holder=dead_holder)
        keys = self.keys
        claim = keys.members(queue, lease), keys.verdicts(queue, lease)
        lease_keys = (keys.leases(queue), keys.ledger(queue, lease), *claim)
        call = lease_calls.forget(lease_keys, queue, lease, dead_holder)
        existed: bool = results((yield (call,)))[0]
        return existed


if TYPE_CHECKING:
    _checked: type[LeaseAdminOps] = RsmqLeaseAdminOps
