"""Stores, blocking and asyncio, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.servers import Server
from tests.store.proxy import Proxy
from tests.store.twins import KINDS, AnyStore

Open = Callable[..., AnyStore]


@pytest.fixture(params=list(KINDS))
def open_store(request: pytest.FixtureRequest) -> Iterator[Open]:
    """A function that opens a store of the kind in turn; they are closed after the test."""
    opened: list[AnyStore] = []

    def open_one(*args: object, **options: object) -> AnyStore:
        opened.append(KINDS[request.param](*args, **options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(server: Server, open_store: Open) -> AnyStore:
    """A store on an empty server."""
    return open_store(server.url)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy before an empty server."""
    with Proxy(server.port) as proxy:
        yield proxy
