"""Connects tasks to the primary: tries the nodes of a list, or asks sentinels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from tambomq.errors import StoreUnavailable
from tambomq.store.aio_connection import AioConnection
from tambomq.store.endpoint import Endpoint
from tambomq.store.primary.choice import REPLICA_FOR_S, Choice
from tambomq.store.primary.sentinels import (
    NOWHERE,
    PrimarySearch,
    SentinelChoice,
    Sentinels,
    primary_of,
)
from tambomq.store.roundtrip import Address

if TYPE_CHECKING:
    from tambomq.store.aio import AsyncStore

AsyncConnect: TypeAlias = Callable[[Address], Awaitable[AioConnection]]


class AsyncListedPrimary:
    """Finds the primary among the nodes of a URL."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Begin with the first node."""
        self._endpoint = endpoint
        self.choice = Choice(endpoint.nodes)

    async def refresh(self) -> bool:
        """Return false: nobody but the nodes knows more."""
        return False

    async def connect(self, connect: AsyncConnect, others: Iterable[Address]) -> AioConnection:
        """Connect to the first reachable primary; if there is none, to a replica."""
        reason: StoreUnavailable | None = None
        replicas: list[AioConnection] = []
        try:
            for node in self.choice.in_order(others):
                try:
                    connection = await connect(node)
                except StoreUnavailable as error:
                    reason = reason or error
                    continue
                if not connection.is_replica:
                    self.choice.is_primary(node)
                    return connection
                replicas.append(connection)
            if not replicas:
                raise reason or StoreUnavailable(f"cannot reach {self._endpoint}")
            asyncio.get_running_loop().call_later(REPLICA_FOR_S, replicas[0].retire)
            return replicas.pop(0)
        finally:
            for unused in replicas:
                unused.close(silent=True)

    async def close(self) -> None:
        """Do nothing: it keeps no connections."""


class AsyncSentinelPrimary:
    """Finds the primary that sentinels name."""

    def __init__(
        self, endpoint: Endpoint, sentinels: Sentinels, open_store: Callable[[Endpoint], AsyncStore]
    ) -> None:
        """Ask each sentinel through a store of its own."""
        self._ask = primary_of(sentinels.name)
        self.choice = SentinelChoice(sentinels)
        self._stores = {
            node: open_store(endpoint.of_sentinel(sentinels, node)) for node in sentinels.nodes
        }

    async def refresh(self) -> bool:
        """Ask a sentinel if that is due; return whether the primary is another one now."""
        if not self.choice.is_outdated() or self.choice.preferred == NOWHERE:
            return False
        for sentinel in self.choice.in_order:
            (answer,) = await self._stores[sentinel].outcomes((self._ask,))
            if isinstance(answer, tuple):
                return self.choice.accept(sentinel, answer)
        self.choice.unanswered()
        return False

    async def connect(self, connect: AsyncConnect, _: Iterable[Address]) -> AioConnection:
        """Connect to the primary. Raises `StoreUnavailable` or `StoreRefused`."""
        search = PrimarySearch(self.choice)
        for sentinel in self.choice.in_order:
            (answer,) = await self._stores[sentinel].outcomes((self._ask,))
            server = search.on_answer(sentinel, answer)
            if server is None:
                continue
            try:
                connection = await connect(server)
            except StoreUnavailable as error:
                search.failed(server, error)
                continue
            (again,) = await self._stores[sentinel].outcomes((self._ask,))
            if search.is_primary(server, again, is_replica=connection.is_replica):
                return connection
            connection.close(silent=True)
        raise search.error()

    async def close(self) -> None:
        """Close the connections to the sentinels."""
        for store in self._stores.values():
            await store.close()


def async_primary_finder(
    endpoint: Endpoint, open_store: Callable[[Endpoint], AsyncStore]
) -> AsyncListedPrimary | AsyncSentinelPrimary:
    """Return the way to find the primary of *endpoint*."""
    if endpoint.sentinels is None:
        return AsyncListedPrimary(endpoint)
    return AsyncSentinelPrimary(endpoint, endpoint.sentinels, open_store)
