"""Several addresses in a URL: the one that is the primary now is used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from tambomq.errors import StoreReadOnly, StoreUnavailable
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import is_replica
from tambomq.store.primary.choice import Choice
from tests.servers import Server, binaries, eventually, eventually_async
from tests.store.conftest import Open
from tests.store.twins import add, command, get, incr

A, B, C = ("a", 1), ("b", 2), ("c", 3)


def test_the_first_address_is_preferred_until_another_is_the_primary() -> None:
    choice = Choice((A, B))
    assert choice.in_order([C, A]) == [A, B, C]
    choice.is_primary(B)
    assert choice.in_order([C]) == [B, A, C]
    choice.is_primary(C)
    assert choice.in_order() == [C, A, B]


def test_an_address_that_refuses_writes_is_tried_last() -> None:
    choice = Choice((A, B))
    choice.takes_no_writes(A)
    assert choice.in_order() == [B, A]
    choice.takes_no_writes(B)
    assert choice.in_order() == [A, B]
    choice.takes_no_writes(C)
    assert choice.in_order() == [A, B]
    choice.is_primary(C)
    choice.takes_no_writes(C)
    assert choice.in_order() == [A, B]


def test_the_role_of_a_server_is_read_from_its_reply() -> None:
    assert is_replica([b"OK", [b"server", b"redis", b"role", b"replica", b"modules", []]])
    assert not is_replica([b"OK", [b"server", b"redis", b"role", b"master", b"modules", []]])
    assert not is_replica([b"OK"])
    assert not is_replica([b"OK", []])


def admin(server: Server) -> redis.Redis:
    # With protocol 3 it would need HELLO.
    return redis.Redis.from_url(server.url, protocol=2)


class Pair:
    """Two servers, of which one is the other's replica."""

    def __init__(self, first: Server, second: Server) -> None:
        self.servers = (first, second)
        self.url = f"redis://127.0.0.1:{first.port},127.0.0.1:{second.port}"

    def make_primary(self, index: int) -> None:
        """Make one the primary of the other, and wait until it has all the data."""
        primary, replica = self.servers[index], self.servers[1 - index]
        with admin(primary) as db, admin(replica) as other:
            command(db, "REPLICAOF", "NO", "ONE")
            command(other, "REPLICAOF", "127.0.0.1", str(primary.port))
            eventually(lambda: _follows(other), within_s=20)

    def make_replicas(self) -> None:
        """Make both replicas."""
        for server in self.servers:
            with admin(server) as db:
                command(db, "REPLICAOF", "127.0.0.1", "1")

    def hang_up(self) -> None:
        """Close the connections of all clients."""
        for server in self.servers:
            with admin(server) as db:
                command(db, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def clients(self, index: int) -> int:
        """Return how many of our connections one has."""
        with admin(self.servers[index]) as db:
            listed: Any = db.client_list()
            return sum(client["name"] == "tambomq" for client in listed)


def _follows(db: redis.Redis) -> bool:
    info: Any = db.info("replication")
    return bool(info.get("master_link_status") == "up")


@contextmanager
def paired(*options: str) -> Iterator[Pair]:
    options = ("--repl-diskless-sync-delay", "0", *options)
    valkey = binaries.valkey()
    with Server(valkey, *options) as first, Server(valkey, *options) as second:
        yield Pair(first, second)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with paired() as pair:
        yield pair


def test_a_url_that_begins_with_a_replica_reaches_the_primary(pair: Pair, open_store: Open) -> None:
    pair.make_primary(1)
    store = open_store(pair.url, patience_s=0)
    assert store.run(incr()) == 1
    assert store.run(incr()) == 2
    # It goes on with the one that it has found.
    assert (pair.clients(0), pair.clients(1)) == (0, 1)


@pytest.mark.parametrize("hello", [True, False])
def test_calls_follow_the_primary_when_roles_are_swapped(open_store: Open, hello: bool) -> None:
    # Old servers and proxies do not report their role.
    options = () if hello else ("--rename-command", "HELLO", "")
    with paired(*options) as pair:
        pair.make_primary(0)
        store = open_store(pair.url, patience_s=20)
        assert store.run(incr()) == 1
        pair.make_primary(1)
        assert store.run(incr()) == 2
        pair.make_primary(0)
        assert store.run(incr()) == 3
        assert store.outcomes([incr(), add("a")]) == [4, "a"]


def test_a_primary_that_restarts_as_a_replica_is_not_written_to(
    pair: Pair, open_store: Open
) -> None:
    pair.make_primary(0)
    store = open_store(pair.url, patience_s=20)
    assert store.run(incr()) == 1
    pair.servers[0].kill()
    with admin(pair.servers[1]) as db:
        command(db, "REPLICAOF", "NO", "ONE")
    assert store.run(add("a")) == "a"
    pair.servers[0].restart()
    pair.make_primary(1)
    pair.hang_up()
    assert store.run(incr()) == 2


def test_a_replica_is_read_from_only_until_there_is_a_primary(pair: Pair, open_store: Open) -> None:
    pair.make_primary(0)
    store = open_store(pair.url, patience_s=0)
    assert store.run(incr()) == 1
    pair.make_replicas()
    pair.hang_up()
    assert store.run(get("count")) == b"1"
    with pytest.raises(StoreReadOnly):
        store.run(incr())
    with admin(pair.servers[1]) as db:
        command(db, "REPLICAOF", "NO", "ONE")
        db.set("count", "7")
    eventually(lambda: store.run(get("count")) == b"7", within_s=20)
    assert store.run(incr()) == 8


def test_without_any_server_the_reason_is_the_first_ones(open_store: Open) -> None:
    store = open_store("redis://127.0.0.1:1,127.0.0.1:2", patience_s=0)
    with pytest.raises(StoreUnavailable, match="cannot reach"):
        store.run(incr())


async def test_a_subscription_is_not_disturbed_by_looking_for_the_primary(pair: Pair) -> None:
    pair.make_primary(1)
    store = AsyncStore(pair.url, patience_s=20)
    with admin(pair.servers[1]) as db:
        async with store.listen("news") as subscription:
            publishing = asyncio.create_task(asyncio.to_thread(db.publish, "news", "now"))
            assert await subscription.wait(60)
            await publishing
            assert subscription.is_usable
            await eventually_async(lambda: pair.clients(0) == 0, within_s=20)
            assert subscription.is_usable
            assert not await subscription.wait(0)
    await store.close()
