"""The stores of one client, by the level of durability that a call asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from tambomq.store.durability.level import MEMORY, Durability, durability

if TYPE_CHECKING:
    from tambomq.store.aio import AsyncStore
    from tambomq.store.sync import Store

S = TypeVar("S", "Store", "AsyncStore")


class StoresByLevel(Generic[S]):
    """Finds the store for a level: *plain* for memory, others are made at their first use."""

    def __init__(
        self, plain: S, make: Callable[[S, Durability], S], level: str, timeout_s: float
    ) -> None:
        self._plain: S = plain
        self._make: Callable[[S, Durability], S] = make
        self._timeout_s = timeout_s
        durability(level, timeout_s)
        self._by_level: dict[str, S] = {MEMORY: plain}
        self.default: S = self.at(level)
        """The store for calls that ask for no level."""

    def at(self, level: str) -> S:
        """Return the store for *level*. Raises `InvalidFormat`."""
        found = self._by_level.get(level) if isinstance(level, str) else None
        if found is None:
            asked = durability(level, self._timeout_s)
            # Of two threads that come here at once, one wins; the other's is not connected yet.
            made = self._plain if asked is None else self._make(self._plain, asked)
            found = self._by_level.setdefault(level, made)
        return found

    @property
    def durable(self) -> list[S]:
        """The stores that wait, to be closed with the plain one."""
        return [store for store in list(self._by_level.values()) if store is not self._plain]
