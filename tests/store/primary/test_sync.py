"""Stores that follow the primary which sentinels name. Tested on both stores."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from tambomq.errors import StoreRefused, StoreUnavailable
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call
from tambomq.store.primary.sentinels import NOWHERE
from tambomq.store.sync import Store
from tests.servers import Server, binaries, eventually, eventually_async
from tests.servers.fake_sentinel import NAME, FakeSentinel, url_of
from tests.store.conftest import Open
from tests.store.twins import AnyStore, add, command, get, incr, known

WITHIN_S = 60


@pytest.fixture(scope="module")
def first() -> Iterator[Server]:
    with Server(binaries.valkey()) as server:
        yield server


@pytest.fixture(scope="module")
def second() -> Iterator[Server]:
    """Another primary: a fake sentinel can name either, and neither knows."""
    with Server(binaries.valkey()) as server:
        yield server


@pytest.fixture(autouse=True)
def _empty(first: Server, second: Server) -> None:
    for each in (first, second):
        with admin(each) as db:
            db.flushall()


@pytest.fixture
def sentinel(first: Server) -> Iterator[FakeSentinel]:
    """A sentinel that names the first."""
    with FakeSentinel(first) as fake:
        yield fake


def admin(server: Server) -> redis.Redis:
    return redis.Redis.from_url(server.url, protocol=2, decode_responses=True)


def stored(server: Server, key: str = "count") -> Any:
    """What one server has."""
    with admin(server) as db:
        return db.get(key)


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """Freeze *server* meanwhile."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def name(sentinel: FakeSentinel, server: Server, store: AnyStore) -> None:
    """Name *server*, and wait until the store knows."""
    sentinel.primary = server

    def is_known() -> bool:
        store.run(get("anything"))
        return bool(known(store).preferred == ("127.0.0.1", server.port))

    eventually(is_known, within_s=WITHIN_S)


def test_the_server_that_a_sentinel_names_is_used(
    first: Server, sentinel: FakeSentinel, open_store: Open
) -> None:
    store = open_store(url_of(sentinel), patience_s=0)
    assert store.run(incr()) == 1
    assert store.outcomes([incr(), add("a")]) == [2, "a"]
    assert stored(first) == "2"


def test_a_former_primary_is_written_to_no_more_even_if_it_takes_writes(
    first: Server, second: Server, sentinel: FakeSentinel, open_store: Open
) -> None:
    store = open_store(url_of(sentinel), patience_s=WITHIN_S)
    assert store.run(incr()) == 1
    name(sentinel, second, store)
    assert [store.run(incr()) for _ in range(3)] == [1, 2, 3]
    assert (stored(first), stored(second)) == ("1", "3")
    name(sentinel, first, store)
    assert store.run(incr()) == 2


def test_a_server_that_was_replaced_while_connecting_is_not_written_to(
    first: Server, second: Server, sentinel: FakeSentinel, open_store: Open
) -> None:
    sentinel.replaced_by = second
    store = open_store(url_of(sentinel), patience_s=WITHIN_S)
    assert store.run(incr()) == 1
    assert (stored(first), stored(second)) == (None, "1")


def test_an_idle_store_asks_before_it_writes(
    first: Server, second: Server, sentinel: FakeSentinel
) -> None:
    store = Store(url_of(sentinel), patience_s=WITHIN_S)
    assert store.run(incr()) == 1
    # Nothing is sent until what it knows is too old.
    eventually(store._choice.is_outdated, within_s=WITHIN_S)
    sentinel.primary = second
    assert store.run(incr()) == 1
    assert (stored(first), stored(second)) == ("1", "1")
    store.close()


async def test_an_idle_async_store_leaves_the_former_primary(
    first: Server, second: Server, sentinel: FakeSentinel
) -> None:
    store = AsyncStore(url_of(sentinel), patience_s=WITHIN_S)
    assert await store.run(incr()) == 1
    sentinel.primary = second

    def is_left() -> bool:
        with admin(first) as db:
            clients: Any = db.client_list()
            return all(each["name"] != "tambomq" for each in clients)

    await eventually_async(is_left, within_s=WITHIN_S)
    assert await store.run(incr()) == 1
    assert (stored(first), stored(second)) == ("1", "1")
    await store.close()


def test_a_call_that_blocks_on_a_frozen_primary_goes_to_the_next(
    first: Server, second: Server, sentinel: FakeSentinel, open_store: Open
) -> None:
    store = open_store(url_of(sentinel), patience_s=WITHIN_S)
    assert store.run(incr()) == 1
    pop = Call("BLPOP", ("list",), (0,), lambda reply: reply[1], repeatable=True)
    popped: list[bytes] = []
    reader = threading.Thread(target=lambda: popped.append(store.run(pop)))
    with admin(first) as db:
        reader.start()
        eventually(lambda: "blocked_clients:1" in _info(db), within_s=WITHIN_S)
    with frozen(first), admin(second) as db:
        sentinel.primary = second
        db.rpush("list", "a")
        reader.join(WITHIN_S)
    assert popped == [b"a"]


def _info(db: redis.Redis) -> str:
    found: Any = db.info("clients")
    return f"blocked_clients:{found['blocked_clients']}"


def test_a_large_request_to_a_frozen_primary_goes_to_the_next(
    first: Server, second: Server, sentinel: FakeSentinel, open_store: Open
) -> None:
    store = open_store(url_of(sentinel), patience_s=WITHIN_S)
    assert store.run(incr()) == 1
    member = "a" * (16 << 20)
    with frozen(first):
        sentinel.primary = second
        assert len(store.run(add(member))) == len(member)
    with admin(second) as db:
        assert db.scard("members") == 1


def test_a_write_that_waited_for_a_frozen_primary_is_not_confirmed_by_it(
    first: Server, second: Server, sentinel: FakeSentinel, open_store: Open
) -> None:
    store = open_store(url_of(sentinel), patience_s=WITHIN_S)
    assert store.run(incr()) == 1
    with frozen(first):
        sentinel.primary = second
        # It cannot be repeated: whether the first executes it is unknown.
        with pytest.raises(StoreUnavailable):
            store.run(incr())
    assert store.run(incr()) == 1
    assert stored(second) == "1"


def test_a_listener_notices_that_its_server_was_replaced(
    first: Server, second: Server, sentinel: FakeSentinel
) -> None:
    store = Store(url_of(sentinel), patience_s=WITHIN_S)
    with frozen_later(first) as freeze:
        with store.listen("news") as listener:
            freeze()
            sentinel.primary = second
            eventually(lambda: listener.wait(1) and not listener.is_usable, within_s=WITHIN_S)
        with store.listen("news") as listener, admin(second) as db:
            db.publish("news", "now")
            assert listener.wait(WITHIN_S)
            assert listener.is_usable
    store.close()


async def test_a_subscription_notices_that_its_server_was_replaced(
    first: Server, second: Server, sentinel: FakeSentinel
) -> None:
    store = AsyncStore(url_of(sentinel), patience_s=WITHIN_S)
    with frozen_later(first) as freeze:
        async with store.listen("news") as subscription:
            freeze()
            sentinel.primary = second
            assert await subscription.wait(WITHIN_S)
            assert not subscription.is_usable
        async with store.listen("news") as subscription:
            with admin(second) as db:
                db.publish("news", "now")
            assert await subscription.wait(WITHIN_S)
            assert subscription.is_usable
    await store.close()


@contextmanager
def frozen_later(server: Server) -> Iterator[Any]:
    """A function that freezes *server*, for as long as the block lasts."""
    try:
        yield lambda: os.kill(server.pid, signal.SIGSTOP)
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_sentinels_are_asked_in_order_and_the_one_that_answers_comes_first(
    first: Server, sentinel: FakeSentinel, open_store: Open
) -> None:
    with FakeSentinel() as stranger, FakeSentinel(first) as silent, FakeSentinel(first) as gone:
        silent.is_silent = True
        url = url_of(gone, silent, stranger, sentinel)
        gone.close()
        store = open_store(url, patience_s=0)
        assert store.run(incr()) == 1
        # Once before it connects, and once after.
        assert (stranger.asked, sentinel.asked) == (1, 2)
        eventually(lambda: store.run(incr()) and sentinel.asked > 2, within_s=WITHIN_S)
        assert stranger.asked == 1


def test_a_server_that_says_it_is_a_replica_is_not_used(
    first: Server, second: Server, sentinel: FakeSentinel, open_store: Open
) -> None:
    with FakeSentinel(second) as outdated:
        with admin(second) as db:
            command(db, "REPLICAOF", "127.0.0.1", str(first.port))
        try:
            store = open_store(url_of(outdated, sentinel), patience_s=0)
            assert store.run(incr()) == 1
            assert stored(first) == "1"
            only = open_store(url_of(outdated), patience_s=0)
            with pytest.raises(StoreUnavailable, match=f"{second.port}: it is a replica"):
                only.run(get("count"))
        finally:
            with admin(second) as db:
                command(db, "REPLICAOF", "NO", "ONE")


def test_a_name_that_no_sentinel_knows_is_refused_at_once(
    sentinel: FakeSentinel, open_store: Open
) -> None:
    with FakeSentinel() as other:
        store = open_store(url_of(sentinel, other, name="nobody"), patience_s=600)
        with pytest.raises(StoreRefused, match=r"the sentinels .* know no primary 'nobody'"):
            store.run(incr())


def test_a_sentinel_that_is_away_may_know_the_name(
    sentinel: FakeSentinel, open_store: Open
) -> None:
    with FakeSentinel() as away:
        url = url_of(away, sentinel, name="later")
        away.close()
        store = open_store(url, patience_s=0)
        with pytest.raises(
            StoreUnavailable, match=r"cannot find the primary 'later': sentinel .*:"
        ):
            store.run(incr())


def test_while_no_sentinel_answers_the_known_primary_is_used(
    first: Server, open_store: Open
) -> None:
    with FakeSentinel(first) as sentinel:
        store = open_store(url_of(sentinel), patience_s=0)
        assert store.run(incr()) == 1
        sentinel.close()
        # It asks before the next call, and goes on without an answer.
        known(store).takes_no_writes(NOWHERE)
        assert store.run(incr()) == 2
        assert not known(store).is_outdated()


def test_a_primary_that_died_is_asked_for_until_another_takes_over(
    second: Server, sentinel: FakeSentinel, open_store: Open
) -> None:
    with Server(binaries.valkey()) as mortal:
        sentinel.primary = mortal
        store = open_store(url_of(sentinel), patience_s=WITHIN_S)
        assert store.run(add("a")) == "a"
    timer = threading.Timer(0.3, setattr, (sentinel, "primary", second))
    timer.start()
    assert store.run(add("b")) == "b"
    timer.join()
    with admin(second) as db:
        assert db.smembers("members") == {"b"}


def test_no_password_is_shown_when_the_primary_cannot_be_found(open_store: Open) -> None:
    url = f"redis+sentinel://me:hunter2@127.0.0.1:1/{NAME}?sentinel_password=hunter3"
    store = open_store(url, patience_s=0)
    with pytest.raises(StoreUnavailable, match=r"sentinel 127\.0\.0\.1:1: cannot reach") as away:
        store.run(incr())
    assert "hunter" not in str(away.value)
