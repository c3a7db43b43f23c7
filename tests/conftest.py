"""Servers for tests: started once, emptied before each test that uses them."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import redis

from tambomq.rsmq import AsyncRsmq, Rsmq
from tambomq.store.sync import Store
from tests import profiles
from tests.groups import group_of
from tests.servers import binaries
from tests.servers.cluster import Cluster
from tests.servers.kinds import FIRST, binary, kinds
from tests.servers.run import Server
from tests.sparking import JAVA, spark

__all__ = ["spark"]

# Whoever runs us in the background may have us ignore SIGINT, and so all that we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Read when gRPC is first imported: its core logs every lost server.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

for variable, words in JAVA.items():
    os.environ.setdefault(variable, words)

profiles.register()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if group := group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def running() -> Iterator[Callable[[str], Server]]:
    """A function that returns the server of that name, started when first asked for."""
    started: dict[str, Server] = {}

    def get(name: str) -> Server:
        if name not in started:
            started[name] = Server(binary(name)).__enter__()
        return started[name]

    yield get
    for server in started.values():
        server.__exit__(None, None, None)


@pytest.fixture
def server(running: Callable[[str], Server]) -> Server:
    """A running server with nothing in it."""
    return _emptied(running(FIRST))


@pytest.fixture(params=kinds())
def each_server(request: pytest.FixtureRequest, running: Callable[[str], Server]) -> Server:
    """Each kind of server in turn, with nothing in it; others than the first with `interop`."""
    return _emptied(running(request.param))


def _emptied(server: Server) -> Server:
    with redis.Redis.from_url(server.url) as admin:
        admin.flushall()
        admin.script_flush()
    return server


@pytest.fixture(scope="session")
def formed_cluster() -> Iterator[Cluster]:
    """One cluster for all tests; they take it through `cluster`."""
    with Cluster() as formed:
        yield formed


@pytest.fixture
def cluster(formed_cluster: Cluster) -> Cluster:
    """Three nodes with nothing in them."""
    for node in range(len(formed_cluster.nodes)):
        formed_cluster.ask(node, "FLUSHALL")
        formed_cluster.ask(node, "SCRIPT", "FLUSH")
    return formed_cluster


@pytest.fixture
def private_server() -> Iterator[Server]:
    """A Valkey of this test's own, to be killed, filled or restarted; it keeps its data (AOF)."""
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with Server(binaries.valkey(), *options) as server:
        yield server


@pytest.fixture
def db(server: Server) -> Iterator[redis.Redis]:
    """The server as an independent client sees it."""
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    """A store on an empty server."""
    opened = Store(server.url)
    yield opened
    opened.close()


@pytest.fixture
def each(each_server: Server) -> Iterator[Store]:
    """A store on an empty server of each kind in turn."""
    opened = Store(each_server.url)
    yield opened
    opened.close()


@pytest.fixture
def each_db(each_server: Server) -> Iterator[redis.Redis]:
    """The same server as an independent client sees it."""
    with redis.Redis.from_url(each_server.url) as client:
        yield client


@pytest.fixture
def rsmq(server: Server) -> Iterator[Rsmq]:
    """A client on an empty server."""
    with Rsmq(server.url) as client:
        yield client


@pytest.fixture
async def async_rsmq(server: Server) -> AsyncIterator[AsyncRsmq]:
    """An asyncio client on an empty server."""
    async with AsyncRsmq(server.url) as client:
        yield client
