"""`ChasquiLeaseOps`: leases on ChasquiMQ queues (an implementation of `tambomq.bulk.lease_ops`).

The jobs of a claim are pending entries of the lease's own consumer in the group. As long as it
renews them, their idle time stays too short for workers of the group to claim them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tambomq.bulk import lease_calls, lease_model
from tambomq.bulk.lease_model import (
    CHUNK,
    AckCounts,
    AttachResult,
    Claim,
    LeaseRequest,
    OpenClaim,
)
from tambomq.chasqui.keys import GROUP, Keys, lessee
from tambomq.chasqui.ops.add import EVENTS_CAP
from tambomq.chasqui.options import CLAIM_IDLE_MS, DLQ_CAP
from tambomq.store.call import Call, Plan, load_script

if TYPE_CHECKING:
    from tambomq.bulk.lease_ops import LeaseOps


_CLAIM = load_script("tambomq.chasqui.bulk", "lease_claim")
_RENEW = load_script("tambomq.chasqui.bulk", "lease_renew")
_PRUNE = load_script("tambomq.chasqui.bulk", "lease_prune")
_ACKNOWLEDGE = load_script("tambomq.chasqui.bulk", "lease_acknowledge")


class ClaimedJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job of a claim, as it was when claimed."""

    entry: str
    digest: str


_decode_member = msgspec.msgpack.Decoder(ClaimedJob).decode


@dataclass(frozen=True, slots=True)
class ChasquiLeaseOps:
    """Lease operations on queues, for one consumer group."""

    group: str = GROUP
    events_cap: int = EVENTS_CAP
    """Length cap of the event stream; 0 writes no events."""
    dlq_cap: int = DLQ_CAP
    """Length cap of the dead-letter stream."""

    # ── the lease ────────────────────────────────────────────────────────────

    def attach(self, request: LeaseRequest, *, dead_holder: str = "") -> Call[AttachResult]:
        """Acquire the lease, unless another owner holds it; *dead_holder* is known to be dead."""
        leases = Keys(request.queue).leases
        return lease_calls.attach(leases, _ledger(request), request, dead_holder)

    def heartbeat(self, request: LeaseRequest) -> Call[Any]:
        """Extend the lease, without its jobs."""
        return self._renewal(request, 0, 0)

    def renew(self, request: LeaseRequest) -> Plan[int]:
        """Extend the lease and reset its jobs' idle time; how many of them are no longer ours."""
        return lease_calls.sum_over_members(lambda first: self._renewal(request, first, CHUNK))

    def resign(self, request: LeaseRequest) -> Call[bool]:
        """Release the lease now; false if another owner holds it."""
        return lease_calls.resign(_ledger(request), request)

    def release_expired(self, queue: str, *, except_lease: str = "") -> Plan[dict[str, int]]:
        """Close the open claims of expired leases; how many jobs each had.

        The jobs have been idle for so long that any consumer of the group may claim them.
        """
        keys = Keys(queue)
        release = partial(release_if_expired, keys)
        return lease_calls.release_expired(keys.leases, release, except_lease)

    # ── claims ───────────────────────────────────────────────────────────────

    def claim(
        self, request: LeaseRequest, number: int, claim_token: str, count: int
    ) -> Plan[Claim]:
        """Read up to *count* jobs as claim *number*, or return that claim if it is open.

        A paused queue has no jobs. Raises `LeaseLost`, or `QueueError` if the lease is at another
        claim.
        """
        keys = Keys(request.queue)
        claim_keys = (*_claim_keys(request), keys.paused, keys.events)

        def take(size: int, more: int) -> Call[Claim]:
            args = (
                *(request.owner, number, claim_token, size, more, _hide_ms(request)),
                *(self.group, lessee(request.lease), CLAIM_IDLE_MS, self.events_cap),
            )
            decode = partial(lease_model.decode_claim, request)
            return Call(_CLAIM, claim_keys, args, decode, repeatable=True)

        return lease_calls.claim_in_chunks(take, count)

    def prune(self, request: LeaseRequest, size: int) -> Plan[int]:
        """Drop jobs that are no longer ours from a claim not yet read; how many are left."""
        args = (request.owner, CHUNK, self.group, lessee(request.lease))
        decode = partial(lease_model.require_owner, request)
        step = Call(_PRUNE, _claim_keys(request), args, decode, repeatable=True)
        return lease_calls.prune_in_chunks(step, size)

    def acknowledge(self, request: LeaseRequest, number: int, claim_token: str) -> Plan[AckCounts]:
        """Close claim *number* after its batch was committed; does nothing if it is closed.

        Raises `LeaseLost`, or `QueueError` if another claim is open.
        """
        keys = Keys(request.queue)
        step_keys = (
            *(*_claim_keys(request), keys.verdicts(request.lease)),
            *(keys.delayed, keys.dlq, keys.events, keys.stalls("")),
        )
        args = (
            *(request.owner, number, claim_token, CHUNK),
            *(self.group, lessee(request.lease), self.dlq_cap, self.events_cap),
        )
        decode = partial(lease_model.require_owner, request)
        step = Call(_ACKNOWLEDGE, step_keys, args, decode, repeatable=True)
        return lease_calls.acknowledge_in_chunks(step)

    def clear_verdicts(self, request: LeaseRequest) -> Plan[None]:
        """Delete the verdicts on the open claim. Raises `LeaseLost`."""
        verdicts = Keys(request.queue).verdicts(request.lease)
        return lease_calls.clear_verdicts((_ledger(request), verdicts), request)

    # ── the open claim ───────────────────────────────────────────────────────

    def claim_size(self, request: LeaseRequest) -> Call[int]:
        """Return how many jobs the open claim has."""
        members = Keys(request.queue).members(request.lease)
        return Call("LLEN", (members,), (), int, repeatable=True)

    def open_claim(self, request: LeaseRequest) -> Call[OpenClaim]:
        """Return the owner of the lease and its open claim."""
        return lease_calls.open_claim(_ledger(request))

    def members(self, request: LeaseRequest, first: int, count: int) -> Call[list[ClaimedJob]]:
        """Return *count* jobs of the open claim from offset *first*."""
        keys = (Keys(request.queue).members(request.lease),)
        return Call("LRANGE", keys, (first, first + count - 1), _decode_members, repeatable=True)

    def pending(self, request: LeaseRequest, first: str, last: str) -> Call[set[str]]:
        """Return the ids from *first* to *last* that are pending for the lease's consumer."""
        args = (self.group, first, last, CHUNK, lessee(request.lease))
        return Call(
            "XPENDING", (Keys(request.queue).stream,), args, _decode_pending, repeatable=True
        )

    def _renewal(self, request: LeaseRequest, first: int, count: int) -> Call[Any]:
        args = (
            *(request.owner, request.lease_ms, _hide_ms(request), first, count),
            *(self.group, lessee(request.lease)),
        )
        decode = partial(lease_model.require_owner, request)
        return Call(_RENEW, _claim_keys(request), args, decode, repeatable=True)


def release_if_expired(keys: Keys, lease: str) -> Call[int]:
    """Close the open claim of an expired lease; how many jobs it had."""
    ledger, members = keys.ledger(lease), keys.members(lease)
    return lease_calls.release_if_expired(ledger, members, keys.verdicts(lease))


def _ledger(request: LeaseRequest) -> str:
    return Keys(request.queue).ledger(request.lease)


def _claim_keys(request: LeaseRequest) -> tuple[str, str, str]:
    keys = Keys(request.queue)
    return keys.stream, keys.ledger(request.lease), keys.members(request.lease)


def _hide_ms(request: LeaseRequest) -> int:
    """Return the idle time, in ms, before which other workers do not claim the jobs."""
    return min(request.hide_ms, CLAIM_IDLE_MS)


def _decode_members(reply: list[bytes]) -> list[ClaimedJob]:
    return [_decode_member(line) for line in reply]


def _decode_pending(reply: list[Any]) -> set[str]:
    return {row[0].decode() for row in reply}


if TYPE_CHECKING:
    _checked: type[LeaseOps] = ChasquiLeaseOps
