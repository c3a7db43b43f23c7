"""`LeaseOps` and `LeaseAdminOps`: the lease operations that each protocol provides to Spark.

Each method describes round trips (`Call`, `Plan`) and makes none. An implementation holds plain
values, since Spark pickles it to its workers. What a lease and a claim are:
`tambomq.bulk.lease_model`.
"""

from __future__ import annotations

from typing import Any, Protocol

from tambomq.bulk.lease_model import (
    AckCounts,
    AttachResult,
    Claim,
    LeaseInfo,
    LeaseRequest,
    OpenClaim,
)
from tambomq.store.call import Call, Plan


class LeaseOps(Protocol):
    """What the holder of a lease does with it. All methods may be repeated after a lost reply.

    All methods but `attach`, `resign` and `release_expired` raise `LeaseLost` if the lease has
    another owner by now.
    """

    def attach(self, request: LeaseRequest, *, dead_holder: str = "") -> Call[AttachResult]:
        """Acquire the lease, unless another owner holds it.

        *dead_holder* is the description of a holder that the caller knows to be dead: its lease
        is taken over before it expires.
        """

    def heartbeat(self, request: LeaseRequest) -> Call[Any]:
        """Extend the lease by ``request.lease_ms``, without its messages."""

    def renew(self, request: LeaseRequest) -> Plan[int]:
        """Extend the lease and keep the open claim's messages from other consumers.

        Returns how many messages of the claim other consumers have received meanwhile.
        """

    def resign(self, request: LeaseRequest) -> Call[bool]:
        """Release the lease now; its claim stays open. False if another owner holds it."""

    def release_expired(self, queue: str, *, except_lease: str = "") -> Plan[dict[str, int]]:
        """Close the open claims of expired leases on *queue*, but not that of *except_lease*.

        Other consumers can receive their messages again. Returns the leases concerned, each with
        a positive number (of its messages, or of its claim) for logs.
        """

    def claim(
        self, request: LeaseRequest, number: int, claim_token: str, count: int
    ) -> Plan[Claim]:
        """Receive up to *count* messages as claim *number*, or return that claim if it is open.

        Raises `QueueError` if the lease is at another claim.
        """

    def prune(self, request: LeaseRequest, size: int) -> Plan[int]:
        """Drop messages that are no longer ours from a claim of *size* that no batch has read.

        Returns how many are left; the claim is closed if none are.
        """

    def acknowledge(self, request: LeaseRequest, number: int, claim_token: str) -> Plan[AckCounts]:
        """Close claim *number* after its batch was committed; does nothing if it is closed.

        Messages are deleted, retried or dead-lettered as their verdicts say. Raises `QueueError`
        if another claim is open.
        """

    def clear_verdicts(self, request: LeaseRequest) -> Plan[None]:
        """Delete the verdicts on the open claim, before its batch is run again by a new owner.

        The batch may judge differently this time, and rows without a verdict are done.
        """

    def claim_size(self, request: LeaseRequest) -> Call[int]:
        """Return how many messages the open claim has; does not check the owner."""

    def open_claim(self, request: LeaseRequest) -> Call[OpenClaim]:
        """Return the owner of the lease and its open claim; does not check the owner."""


class LeaseAdminOps(Protocol):
    """What an operator does with the leases on a queue, without holding any."""

    def list_leases(self, queue: str) -> Plan[list[LeaseInfo]]:
        """Return the leases on *queue*, by name."""

    def release(self, queue: str, lease: str, *, dead_holder: str = "") -> Plan[int]:
        """Return the claimed messages of a lease without a live holder to the queue; how many.

        Raises `LeaseTaken` while the lease is held, unless by *dead_holder*.
        """

    def forget(
        self, queue: str, lease: str, *, give_back: bool = False, dead_holder: str = ""
    ) -> Plan[bool]:
        """Delete a lease; false if there is none.

        Raises `LeaseTaken` while it is held, unless by *dead_holder*, and `QueueError` while a
        claim is open, unless *give_back* releases its messages first.
        """
