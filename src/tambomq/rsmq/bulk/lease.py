"""`RsmqLeaseOps`: leases on RSMQ queues (an implementation of `tambomq.bulk.lease_ops`).

The messages of a claim are hidden like received ones, with the claim token in their receipts: a
message is ours only while its receipt is the current one.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from tambomq.rsmq.keys import DEAD_SUFFIX, Keys, check_dead_queue
from tambomq.rsmq.ops.replies import require_queue
from tambomq.store.call import Call, Plan, load_script, results

if TYPE_CHECKING:
    from tambomq.bulk.lease_ops import LeaseOps


_CLAIM = load_script("tambomq.rsmq.bulk", "lease_claim")
_RENEW = load_script("tambomq.rsmq.bulk", "lease_renew")
_PRUNE = load_script("tambomq.rsmq.bulk", "lease_prune")
_ACKNOWLEDGE = load_script("tambomq.rsmq.bulk", "lease_acknowledge")


class ClaimedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of a claim, as it was when claimed."""

    id: bytes
    rc: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class RsmqLeaseOps:
    """Lease operations on the queues of one namespace."""

    keys: Keys
    dead_queue: str = ""
    """Dead-letter queue of acknowledged claims; '' for ``<queue>`` with `DEAD_SUFFIX`."""

    # ── the lease ────────────────────────────────────────────────────────────

    def attach(self, request: LeaseRequest, *, dead_holder: str = "") -> Call[AttachResult]:
        """Acquire the lease, unless another owner holds it; *dead_holder* is known to be dead."""
        leases = self.keys.leases(request.queue)
        return lease_calls.attach(leases, self._ledger(request), request, dead_holder)

    def heartbeat(self, request: LeaseRequest) -> Call[Any]:
        """Extend the lease, without its messages."""
        return self._renewal(request, 0, 0)

    def renew(self, request: LeaseRequest) -> Plan[int]:
        """Extend the lease and hide its messages; how many of them others have received."""
        return lease_calls.sum_over_members(lambda first: self._renewal(request, first, CHUNK))

    def resign(self, request: LeaseRequest) -> Call[bool]:
        """Release the lease now; false if another owner holds it."""
        return lease_calls.resign(self._ledger(request), request)

    def release_expired(self, queue: str, *, except_lease: str = "") -> Plan[dict[str, int]]:
        """Close the open claims of expired leases; how many messages each had.

        The messages have become visible by themselves.
        """
        release = partial(release_if_expired, self.keys, queue)
        return lease_calls.release_expired(self.keys.leases(queue), release, except_lease)

    # ── claims ───────────────────────────────────────────────────────────────

    def claim(
        self, request: LeaseRequest, number: int, claim_token: str, count: int
    ) -> Plan[Claim]:
        """Receive up to *count* messages as claim *number*, or return that claim if it is open.

        Raises `QueueNotFound`, `LeaseLost`, or `QueueError` if the lease is at another claim.
        """

        def take(size: int, more: int) -> Call[Claim]:
            args = (request.owner, number, claim_token, size, more, request.hide_ms)
            decode = partial(_decode_claim, request)
            return Call(_CLAIM, self._claim_keys(request), args, decode, repeatable=True)

        return lease_calls.claim_in_chunks(take, count)

    def prune(self, request: LeaseRequest, size: int) -> Plan[int]:
        """Drop messages that others have received from a claim not yet read; how many are left."""
        _, data, *rest = self._claim_keys(request)
        decode = partial(lease_model.require_owner, request)
        step = Call(_PRUNE, (data, *rest), (request.owner, CHUNK), decode, repeatable=True)
        return lease_calls.prune_in_chunks(step, size)

    def acknowledge(self, request: LeaseRequest, number: int, claim_token: str) -> Plan[AckCounts]:
        """Close claim *number* after its batch was committed; does nothing if it is closed.

        Raises `LeaseLost`, or `QueueError` if another claim is open.
        """
        keys, queue = self.keys, request.queue
        dead_queue = check_dead_queue(self.dead_queue or queue + DEAD_SUFFIX, of=queue)
        *own, receipts = self._claim_keys(request)
        dead_keys = (keys.queues, *keys.of(dead_queue))
        step_keys = (*own, keys.verdicts(queue, request.lease), *dead_keys, receipts)
        args = (request.owner, number, claim_token, CHUNK, dead_queue)
        decode = partial(lease_model.require_owner, request)
        step = Call(_ACKNOWLEDGE, step_keys, args, decode, repeatable=True)
        return lease_calls.acknowledge_in_chunks(step)

    def write_verdicts(
        self,
        request: LeaseRequest,
        number: int,
        claim_token: str,
        verdicts: Sequence[tuple[str, str]],
    ) -> Plan[None]:
        """Store what happens to messages at the acknowledgement, as (id, verdict).

        A verdict is ``r<ms>`` (retry after that delay), ``d<reason>`` (dead-letter), or ``''``
        (done). Raises `LeaseLost`, or `QueueError` if claim *number* is not open.
        """
        keys = self._verdict_keys(request)
        for first in range(0, len(verdicts), CHUNK):
            args = lease_model.verdict_args(verdicts[first : first + CHUNK])
            call = lease_calls.write_verdicts(keys, request, number, claim_token, args)
            results((yield (call,)))

    def clear_verdicts(self, request: LeaseRequest) -> Plan[None]:
        """Delete the verdicts on the open claim. Raises `LeaseLost`."""
        return lease_calls.clear_verdicts(self._verdict_keys(request), request)

    # ── the open claim ───────────────────────────────────────────────────────

    def claim_size(self, request: LeaseRequest) -> Call[int]:
        """Return how many messages the open claim has."""
        members = self.keys.members(request.queue, request.lease)
        return Call("LLEN", (members,), (), int, repeatable=True)

    def open_claim(self, request: LeaseRequest) -> Call[OpenClaim]:
        """Return the owner of the lease and its open claim."""
        return lease_calls.open_claim(self._ledger(request))

    def members(self, request: LeaseRequest, first: int, count: int) -> Call[list[ClaimedMessage]]:
        """Return *count* messages of the open claim from offset *first*."""
        keys = (self.keys.members(request.queue, request.lease),)
        return Call("LRANGE", keys, (first, first + count - 1), _decode_members, repeatable=True)

    def _ledger(self, request: LeaseRequest) -> str:
        return self.keys.ledger(request.queue, request.lease)

    def _verdict_keys(self, request: LeaseRequest) -> tuple[str, str]:
        return self._ledger(request), self.keys.verdicts(request.queue, request.lease)

    def _claim_keys(self, request: LeaseRequest) -> tuple[str, ...]:
        """Return the keys of messages, data, ledger, members and receipts, in this order."""
        keys, queue, lease = self.keys, request.queue, request.lease
        claim = keys.ledger(queue, lease), keys.members(queue, lease)
        return (*keys.of(queue), *claim, keys.receipts(queue))

    def _renewal(self, request: LeaseRequest, first: int, count: int) -> Call[Any]:
        args = (request.owner, request.lease_ms, request.hide_ms, first, count)
        decode = partial(lease_model.require_owner, request)
        return Call(_RENEW, self._claim_keys(request), args, decode, repeatable=True)


def release_if_expired(keys: Keys, queue: str, lease: str) -> Call[int]:
    """Close the open claim of an expired lease; how many messages it had."""
    ledger, members = keys.ledger(queue, lease), keys.members(queue, lease)
    return lease_calls.release_if_expired(ledger, members, keys.verdicts(queue, lease))


def _decode_claim(request: LeaseRequest, reply: Any) -> Claim:
    return lease_model.decode_claim(request, require_queue(request.queue, reply))


def _decode_members(reply: list[bytes]) -> list[ClaimedMessage]:
    fields = (line.split(b" ", 2) for line in reply)
    return [ClaimedMessage(id, rc, digest) for rc, digest, id in fields]


if TYPE_CHECKING:
    _checked: type[LeaseOps] = RsmqLeaseOps
