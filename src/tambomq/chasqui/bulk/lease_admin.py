"""`ChasquiLeaseAdminOps`: operators' commands on ChasquiMQ leases (`tambomq.bulk.lease_ops`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tambomq.bulk import lease_calls, lease_model
from tambomq.bulk.lease_model import CHUNK, LeaseInfo
from tambomq.chasqui.bulk.lease import release_if_expired
from tambomq.chasqui.keys import GROUP, RETURNED, Keys, lessee
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.chasqui.options import CLAIM_IDLE_MS
from tambomq.store.call import Call, Plan, load_script, results

if TYPE_CHECKING:
    from tambomq.bulk.lease_ops import LeaseAdminOps

_GIVE_BACK = load_script("tambomq.chasqui.bulk", "lease_give_back")


@dataclass(frozen=True, slots=True)
class ChasquiLeaseAdminOps:
    """Operators' commands on the leases of one consumer group."""

    group: str = GROUP

    def list_leases(self, queue: str) -> Plan[list[LeaseInfo]]:
        """Return the leases on *queue*, by name."""
        keys = Keys(queue)

        def look_up(lease: str) -> tuple[str, Call[int]]:
            size = Call("LLEN", (keys.members(lease),), (), int, repeatable=True)
            return keys.ledger(lease), size

        return lease_calls.list_leases(keys.leases, look_up)

    def release(self, queue: str, lease: str, *, dead_holder: str = "") -> Plan[int]:
        """Release the jobs of a lease without a live holder, for workers to claim; how many.

        If its query restarts, it finds them lost. Raises `LeaseTaken` while the lease is
        held, unless by *dead_holder*.
        """
        keys = Keys(queue)
        claim_keys = (keys.stream, keys.ledger(lease), keys.members(lease))
        decode = partial(lease_model.require_unheld, queue, lease)

        def give_back(first: int) -> Call[Any]:
            names = (self.group, lessee(lease), RETURNED)
            args = (first, CHUNK, *names, CLAIM_IDLE_MS, dead_holder)
            return Call(_GIVE_BACK, claim_keys, args, decode, repeatable=True)

        count = yield from lease_calls.sum_over_members(give_back)
        results((yield (release_if_expired(keys, lease),)))
        return count

    def forget(
        self, queue: str, lease: str, *, give_back: bool = False, dead_holder: str = ""
    ) -> Plan[bool]:
        """Delete a lease, and its consumer from the group; false if there is none.

        Raises `LeaseTaken` while it is held, and `QueueError` while a claim is open, unless
        *give_back* releases its jobs first.
        """
        if give_back:
            yield from self.release(queue, lease, dead_holder=dead_holder)
        keys = Keys(queue)
        lease_keys = (keys.leases, keys.ledger(lease), keys.members(lease), keys.verdicts(lease))
        call = lease_calls.forget(lease_keys, queue, lease, dead_holder)
        existed: bool = results((yield (call,)))[0]
        results((yield (worker_ops.leave(ConsumerContext(keys, self.group, lessee(lease))),)))
        return existed


if TYPE_CHECKING:
    _checked: type[LeaseAdminOps] = ChasquiLeaseAdminOps
