"""`LeaseBench`: an owner of leases on the queue ``q`` in a test, and time that passes.

A subclass for each protocol adds messages to the queue, and lets the protocol's own times pass.
"""

from __future__ import annotations

from typing import Any

import redis

from tambomq.bulk.lease_model import AckCounts, Claim, LeaseRequest
from tambomq.bulk.lease_ops import LeaseAdminOps, LeaseOps
from tambomq.store.call import Plan
from tambomq.store.sync import Store
from tests.servers import Server


class LeaseBench:
    """Runs the lease operations of one protocol against a server."""

    def __init__(self, server: Server, ops: LeaseOps, admin: LeaseAdminOps) -> None:
        self.store = Store(server.url)
        self.db: Any = redis.Redis.from_url(server.url)
        self._ops, self._admin = ops, admin

    def close(self) -> None:
        self.store.close()
        self.db.close()

    def ledger(self, lease: str = "l") -> str:
        """The key of a lease's ledger."""
        raise NotImplementedError

    def attached(self, owner: str = "one", lease: str = "l", queue: str = "q") -> LeaseRequest:
        request = LeaseRequest(queue, lease, owner, f"driver {owner}")
        assert self.store.run(self._ops.attach(request)).acquired
        return request

    def claim(
        self, request: LeaseRequest, number: int = 1, count: int = 10, claim_token: str = "m"
    ) -> Claim:
        return self.store.follow(self._ops.claim(request, number, claim_token, count))

    def acknowledge(
        self, request: LeaseRequest, number: int = 1, claim_token: str = "m"
    ) -> AckCounts:
        return self.store.follow(self._ops.acknowledge(request, number, claim_token))

    def follow(self, plan: Plan[Any]) -> Any:
        return self.store.follow(plan)

    def leases(self) -> list[tuple[str, str, str, int, int]]:
        """All leases on the queue, without their times."""
        found = self.follow(self._admin.list_leases("q"))
        return [(each.name, each.state, each.holder, each.claim, each.size) for each in found]

    def expire_lease(self, lease: str = "l") -> None:
        """Expire the lease, but not the visibility timeouts of its messages."""
        self.db.hset(self.ledger(lease), "until", 1)

    def expire_claim(self) -> None:
        """Expire the lease and its claim: others may receive the messages."""
        self.db.hset(self.ledger(), mapping={"until": 1, "hidden_until": 1})
