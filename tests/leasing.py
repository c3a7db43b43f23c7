"""Who wants a lease in a test, whatever the protocol: one queue, ``q``, and time that passes.

A stage of a protocol adds how messages come into the queue, and how all time passes there.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import redis

from tambomq.store.call import Plan
from tambomq.store.ledger import Claim, Holding, Settled, Term
from tambomq.store.sync import Store
from tests.servers import Server


class LeaseStage:
    """Makes what *ops* and *admin*, a protocol's, describe; *keys* is what they want first."""

    def __init__(self, server: Server, ops: ModuleType, admin: ModuleType, keys: Any) -> None:
        self.store = Store(server.url)
        self.db: Any = redis.Redis.from_url(server.url)
        self._ops, self._admin, self._keys = ops, admin, keys

    def close(self) -> None:
        self.store.close()
        self.db.close()

    def ledger(self, lease: str = "l") -> str:
        """The key of what is known of a lease."""
        raise NotImplementedError

    def attached(self, owner: str = "one", lease: str = "l", queue: str = "q") -> Term:
        term = Term(queue, lease, owner, f"driver {owner}")
        assert self.store.run(self._ops.attach(self._keys, term)).ours
        return term

    def claim(self, term: Term, number: int = 1, count: int = 10, mark: str = "m") -> Claim:
        plan: Plan[Claim] = self._ops.claim(self._keys, term, number, mark, count)
        return self.store.follow(plan)

    def end(self, term: Term, number: int = 1, mark: str = "m") -> Settled:
        plan: Plan[Settled] = self._ops.acknowledge(self._keys, term, number, mark)
        return self.store.follow(plan)

    def follow(self, plan: Plan[Any]) -> Any:
        return self.store.follow(plan)

    def seen(self) -> list[tuple[str, str, str, int, int]]:
        """All leases on the queue, without their times."""
        found: list[Holding] = self.follow(self._admin.listed(self._keys, "q"))
        return [(each.name, each.state, each.holder, each.claim, each.size) for each in found]

    def let_the_lease_end(self, lease: str = "l") -> None:
        """As if its time were over: others may have the lease, not yet the messages."""
        self.db.hset(self.ledger(lease), "until", 1)

    def let_all_time_pass(self) -> None:
        """As if nobody had renewed for so long that others may have the messages."""
        self.db.hset(self.ledger(), mapping={"until": 1, "hidden_until": 1})
