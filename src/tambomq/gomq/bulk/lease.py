"""`GomqLeaseOps`: leases on GOMQ keys (an implementation of `tambomq.bulk.lease_ops`).

A lease is a consumer with one peer and one key (the *queue* of a request). Its claim is a batch
that was handed out to the peer and is not acknowledged. If the peer is silent for longer than
``peer_timeout_s``, it is disconnected and its batch put back, like any other peer's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tambomq.bulk import lease_calls, lease_model
from tambomq.bulk.lease_model import AckCounts, AttachResult, Claim, LeaseRequest, OpenClaim
from tambomq.errors import QueueError
from tambomq.gomq import keys
from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.store.call import Call, Plan, load_script, results

if TYPE_CHECKING:
    from tambomq.bulk.lease_ops import LeaseOps

MAX_MESSAGES: Final = 1000
"""Messages of a claim, which is a single batch."""
MAX_BYTES: Final = 8 << 20
"""Bytes of a claim, after which no further message is added."""


_CLAIM = load_script("tambomq.gomq.bulk", "lease_claim")
_RENEW = load_script("tambomq.gomq.bulk", "lease_renew")
_ACKNOWLEDGE = load_script("tambomq.gomq.bulk", "lease_acknowledge")
_MEMBERS = load_script("tambomq.gomq.bulk", "lease_members")
_RELEASE = load_script("tambomq.gomq.bulk", "lease_release")


@dataclass(frozen=True, slots=True)
class GomqLeaseOps:
    """Lease operations on the keys of one service."""

    options: Options = field(default_factory=Options)

    # ── the lease ────────────────────────────────────────────────────────────

    def attach(self, request: LeaseRequest, *, dead_holder: str = "") -> Call[AttachResult]:
        """Acquire the lease, unless another owner holds it; *dead_holder* is known to be dead."""
        leases = keys.leases(request.queue)
        return lease_calls.attach(leases, _ledger(request), request, dead_holder)

    def heartbeat(self, request: LeaseRequest) -> Call[Any]:
        """Extend the lease and keep its peer connected, and thereby its claim."""
        consumer = keys.lessee(request.lease)
        call_keys = (
            *(keys.last_action(consumer), keys.handed(consumer, consumer)),
            _ledger(request),
        )
        args = (
            request.owner,
            request.lease_ms,
            self._hide_ms,
            message_ops.last_action_ttl_s(self.options),
        )
        decode = partial(lease_model.require_owner, request)
        return Call(_RENEW, call_keys, args, decode, repeatable=True)

    def renew(self, request: LeaseRequest) -> Plan[int]:
        """Extend the lease as `heartbeat` does; 1 if its claim was taken away, else 0."""
        return int(results((yield (self.heartbeat(request),)))[0][0])

    def resign(self, request: LeaseRequest) -> Call[bool]:
        """Release the lease now; false if another owner holds it."""
        return lease_calls.resign(_ledger(request), request)

    def release_expired(self, queue: str, *, except_lease: str = "") -> Plan[dict[str, int]]:
        """Close the open claims of expired leases; the number of each claim.

        Their peers are disconnected: messages that only they were owed return to the main queue.
        """
        release = partial(release_if_expired, queue)
        released = yield from lease_calls.release_expired(keys.leases(queue), release, except_lease)
        for lease in released:
            yield from leave_ops.reap(keys.lessee(lease), self.options)
        return released

    # ── claims ───────────────────────────────────────────────────────────────

    def claim(
        self, request: LeaseRequest, number: int, claim_token: str, count: int
    ) -> Plan[Claim]:
        """Receive up to *count* messages as claim *number*, or return that claim if it is open.

        At most `MAX_MESSAGES`. The lease is subscribed, and messages in the main queue are
        dispatched. Raises `LeaseLost`, or `QueueError` if the lease is at another claim, or
        subscribed to another key.
        """
        yield from self._subscribe(request)
        consumer = keys.lessee(request.lease)
        claim_keys = (
            *(keys.last_action(consumer), keys.handed(consumer, consumer)),
            *(keys.messages(request.queue, consumer, consumer), _ledger(request)),
        )
        args = (
            *(request.owner, number, claim_token, min(count, MAX_MESSAGES), MAX_BYTES),
            *(self._hide_ms, message_ops.last_action_ttl_s(self.options), request.queue),
        )
        decode = partial(lease_model.decode_claim, request)
        call = Call(_CLAIM, claim_keys, args, decode, repeatable=True)
        got: Claim = results((yield (call,)))[0]
        return got

    def prune(self, request: LeaseRequest, size: int) -> Plan[int]:  # noqa: ARG002  (see below)
        """Return *size*: a GOMQ claim is one batch, which is lost as a whole or not at all."""
        yield from ()
        return size

    def acknowledge(self, request: LeaseRequest, number: int, claim_token: str) -> Plan[AckCounts]:
        """Close claim *number* after its batch was committed; does nothing if it is closed.

        Raises `LeaseLost`, or `QueueError` if another claim is open.
        """
        consumer = keys.lessee(request.lease)
        call_keys = (keys.handed(consumer, consumer), _ledger(request))
        args = (request.owner, number, claim_token)
        decode = partial(lease_model.require_owner, request)
        call = Call(_ACKNOWLEDGE, call_keys, args, decode, repeatable=True)
        _, *counts = results((yield (call,)))[0]
        return lease_model.sum_ack_counts([counts])

    def clear_verdicts(self, request: LeaseRequest) -> Plan[None]:  # noqa: ARG002  (see below)
        """Do nothing: GOMQ has no verdicts."""
        yield from ()

    # ── the open claim ───────────────────────────────────────────────────────

    def claim_size(self, request: LeaseRequest) -> Call[int]:
        """Return how many messages the open claim has."""
        return claim_size(request.queue, request.lease)

    def open_claim(self, request: LeaseRequest) -> Call[OpenClaim]:
        """Return the owner of the lease and its open claim."""
        return lease_calls.open_claim(_ledger(request))

    def members(
        self, request: LeaseRequest, claim_token: str, first: int, count: int
    ) -> Call[list[bytes]]:
        """Return *count* messages of a claim from offset *first*; none if it is not open."""
        consumer = keys.lessee(request.lease)
        call_keys = (keys.handed(consumer, consumer),)
        return Call(_MEMBERS, call_keys, (claim_token, first, count), list, repeatable=True)

    def _subscribe(self, request: LeaseRequest) -> Plan[None]:
        """Subscribe the lease to its key, and dispatch the key's main queue."""
        key, consumer = request.queue, keys.lessee(request.lease)
        names = (keys.subscriptions(consumer),)
        subscriptions = Call("SMEMBERS", names, (), lease_model.decode_names, repeatable=True)
        subscribed = results((yield (self.heartbeat(request), subscriptions)))[1]
        if others := sorted(set(subscribed) - {key}):
            raise QueueError(
                key,
                f"lease {request.lease!r} is subscribed to key {others[0]!r}, not to {key!r}: "
                "use a lease of its own for each key",
            )
        subscribe = message_ops.subscribe(key, consumer, consumer, self.options)
        dispatch = message_ops.dispatch(key, observed=True)
        # Only what they report changes with a repetition, and nobody counts that here.
        calls = [msgspec.structs.replace(each, repeatable=True) for each in (subscribe, dispatch)]
        known, dispatched = results((yield calls))
        if known is None or dispatched.is_unsettled:
            yield from leave_ops.settle(key)
            results((yield calls))

    @property
    def _hide_ms(self) -> int:
        return int(self.options.peer_timeout_s * 1000)


def claim_size(queue: str, lease: str) -> Call[int]:
    """Return how many messages the open claim of a lease has."""
    ledger = keys.ledger(queue, lease)
    return Call("HGET", (ledger,), ("size",), _decode_size, repeatable=True)


def release_if_expired(queue: str, lease: str) -> Call[int]:
    """Close the open claim of an expired lease; the claim's number, 0 for none."""
    return Call(_RELEASE, (keys.ledger(queue, lease),), (), int, repeatable=True)


def _ledger(request: LeaseRequest) -> str:
    return keys.ledger(request.queue, request.lease)


def _decode_size(reply: bytes | None) -> int:
    return int(reply or 0)


if TYPE_CHECKING:
    _checked: type[LeaseOps] = GomqLeaseOps
