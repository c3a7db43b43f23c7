"""Connects blocking callers to the primary: tries the nodes of a list, or asks sentinels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from tambomq.errors import StoreUnavailable
from tambomq.store.endpoint import Endpoint
from tambomq.store.primary.choice import Choice
from tambomq.store.primary.sentinels import (
    NOWHERE,
    PrimarySearch,
    SentinelChoice,
    Sentinels,
    primary_of,
)
from tambomq.store.roundtrip import Address
from tambomq.store.sync_connection import SyncConnection

if TYPE_CHECKING:
    from tambomq.store.sync import Store

Connect: TypeAlias = Callable[[Address], SyncConnection]


class ListedPrimary:
    """Finds the primary among the nodes of a URL."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Begin with the first node."""
        self._endpoint = endpoint
        self.choice = Choice(endpoint.nodes)

    def refresh(self) -> bool:
        """Return false: nobody but the nodes knows more."""
        return False

    def connect(
        self, connect: Connect, others: Iterable[Address]
    ) -> tuple[Address, SyncConnection]:
        """Connect to the first reachable primary; if there is none, to a replica."""
        reason: StoreUnavailable | None = None
        replicas: list[tuple[Address, SyncConnection]] = []
        try:
            for node in self.choice.in_order(others):
                try:
                    connection = connect(node)
                except StoreUnavailable as error:
                    reason = reason or error
                    continue
                if not connection.is_replica:
                    self.choice.is_primary(node)
                    return node, connection
                replicas.append((node, connection))
            if not replicas:
                raise reason or StoreUnavailable(f"cannot reach {self._endpoint}")
            return replicas.pop(0)
        finally:
            for _, unused in replicas:
                unused.close()

    def close(self) -> None:
        """Do nothing: it keeps no connections."""


class SentinelPrimary:
    """Finds the primary that sentinels name."""

    def __init__(
        self, endpoint: Endpoint, sentinels: Sentinels, open_store: Callable[[Endpoint], Store]
    ) -> None:
        """Ask each sentinel through a store of its own."""
        self._ask = primary_of(sentinels.name)
        self.choice = SentinelChoice(sentinels)
        self._stores = {
            node: open_store(endpoint.of_sentinel(sentinels, node)) for node in sentinels.nodes
        }

    def refresh(self) -> bool:
        """Ask a sentinel if that is due; return whether the primary is another one now."""
        if not self.choice.is_outdated() or self.choice.preferred == NOWHERE:
            return False
        for sentinel in self.choice.in_order:
            (answer,) = self._stores[sentinel].outcomes((self._ask,))
            if isinstance(answer, tuple):
                return self.choice.accept(sentinel, answer)
        self.choice.unanswered()
        return False

    def connect(self, connect: Connect, _: Iterable[Address]) -> tuple[Address, SyncConnection]:
        """Connect to the primary. Raises `StoreUnavailable` or `StoreRefused`."""
        search = PrimarySearch(self.choice)
        for sentinel in self.choice.in_order:
            (answer,) = self._stores[sentinel].outcomes((self._ask,))
            server = search.on_answer(sentinel, answer)
            if server is None:
                continue
            try:
                connection = connect(server)
            except StoreUnavailable as error:
                search.failed(server, error)
                continue
            (again,) = self._stores[sentinel].outcomes((self._ask,))
            if search.is_primary(server, again, is_replica=connection.is_replica):
                return server, connection
            connection.close()
        raise search.error()

    def close(self) -> None:
        """Close the connections to the sentinels."""
        for store in self._stores.values():
            store.close()


def primary_finder(
    endpoint: Endpoint, open_store: Callable[[Endpoint], Store]
) -> ListedPrimary | SentinelPrimary:
    """Return the way to find the primary of *endpoint*."""
    if endpoint.sentinels is None:
        return ListedPrimary(endpoint)
    return SentinelPrimary(endpoint, endpoint.sentinels, open_store)
