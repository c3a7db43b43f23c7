"""Durable stores, blocking and asyncio, on a primary with a replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tambomq.store.durability.aio import async_stores
from tambomq.store.durability.sync import stores
from tambomq.store.sync import Store
from tests.servers import eventually
from tests.servers.pair import Pair, running_pair
from tests.store.twins import AnyStore, Looped

OpenDurable = Callable[..., AnyStore]


class LoopedDurable(Looped):
    """A durable store of asyncio whose loop runs in a thread."""

    def __init__(self, url: str, level: str, timeout_s: float) -> None:
        super().__init__(url)
        self.store = async_stores(self.store, level, timeout_s).default


def _blocking(url: str, level: str, timeout_s: float) -> AnyStore:
    return stores(Store(url), level, timeout_s).default


@pytest.fixture(params=[_blocking, LoopedDurable], ids=["sync", "aio"])
def open_durable(request: pytest.FixtureRequest) -> Iterator[OpenDurable]:
    """A function that opens a durable store of the kind in turn; closed after the test."""
    opened: list[AnyStore] = []

    def open_one(url: str, level: str, timeout_s: float = 30) -> AnyStore:
        opened.append(request.param(url, level, timeout_s))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture(scope="module")
def one_pair() -> Iterator[Pair]:
    """A primary and its replica, for all tests of a module."""
    with running_pair() as pair:
        yield pair


@pytest.fixture
def pair(one_pair: Pair) -> Pair:
    """The pair, with nothing in it."""
    one_pair.ask("FLUSHALL")
    eventually(one_pair.follows, within_s=30)
    return one_pair
