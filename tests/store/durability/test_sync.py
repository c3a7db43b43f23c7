"""Durable calls on real servers, of both stores."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tambomq.errors import BatchIncomplete, NotDurable, ReplyLost, TamboError
from tambomq.store.call import Call, Plan, results
from tambomq.store.durability.sync import stores
from tambomq.store.sync import Store
from tests.chaos.shims import preload
from tests.chaos.shims.disk import DiskFault
from tests.servers import Server, binaries, eventually
from tests.servers.pair import Pair
from tests.store.durability.conftest import OpenDurable
from tests.store.proxy import Proxy
from tests.store.twins import add, incr


def put() -> Call[int]:
    return Call("SADD", ("set",), ("a",), int, repeatable=True)


@pytest.mark.parametrize("level", ["disk", "replicas:1"])
def test_a_durable_call_returns_what_a_plain_one_does(
    pair: Pair, open_durable: OpenDurable, level: str
) -> None:
    store = open_durable(pair.primary.url, level)
    assert [store.run(incr()), store.run(incr())] == [1, 2]
    assert store.outcomes([incr(), add("a")]) == [3, "a"]


def test_a_confirmed_call_leaves_no_key_but_its_own(pair: Pair, open_durable: OpenDurable) -> None:
    open_durable(pair.primary.url, "replicas:1").run(incr())
    assert pair.ask("KEYS", "*") == [b"count"]


def test_fewer_replicas_than_asked_for_are_an_error_with_the_result(
    pair: Pair, open_durable: OpenDurable
) -> None:
    store = open_durable(pair.primary.url, "replicas:2", timeout_s=0.2)
    with pytest.raises(NotDurable, match="1 of 2 replicas") as failed:
        store.run(incr())
    assert (failed.value.acknowledged, failed.value.result) == (1, 1)
    assert pair.ask("GET", "count") == b"1"


def test_a_repeated_call_that_writes_nothing_waits_for_what_it_found(
    pair: Pair, open_durable: OpenDurable
) -> None:
    store = open_durable(pair.primary.url, "replicas:1", timeout_s=0.2)
    with pair.frozen_replica():
        with pytest.raises(NotDurable):
            store.run(put())
        with pytest.raises(NotDurable):
            store.run(put())
    eventually(pair.follows, within_s=30)
    assert store.run(put()) == 0


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start *work*; the list gets its result, or the error that it raised."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(work())
        except TamboError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ended


def test_a_primary_that_is_demoted_in_the_wait_confirms_nothing(
    pair: Pair, open_durable: OpenDurable
) -> None:
    store = open_durable(pair.primary.url, "replicas:1")
    with pair.frozen_replica():
        thread, ended = in_thread(lambda: store.run(incr()))
        try:
            eventually(lambda: pair.ask("GET", "count") == b"1", within_s=30)
            pair.ask("REPLICAOF", "127.0.0.1", 1)
            thread.join(30)
        finally:
            pair.ask("REPLICAOF", "NO", "ONE")
            thread.join(30)
    assert [type(each) for each in ended] == [NotDurable]


def test_a_repeatable_call_waits_on_the_server_that_is_primary_after_a_failover(
    pair: Pair, open_durable: OpenDurable
) -> None:
    store = open_durable(pair.primary.url, "replicas:1")
    with pair.frozen_replica():
        thread, ended = in_thread(lambda: store.run(put()))
        try:
            eventually(lambda: pair.ask("SCARD", "set") == 1, within_s=30)
            pair.ask("REPLICAOF", "127.0.0.1", 1)
        finally:
            pair.ask("REPLICAOF", "NO", "ONE")
        assert not ended
    thread.join(60)
    assert ended == [0]
    assert pair.follows()


def test_a_reply_that_is_lost_in_the_wait_confirms_nothing(
    pair: Pair, open_durable: OpenDurable
) -> None:
    with Proxy(pair.primary.port) as proxy:
        store = open_durable(proxy.url, "replicas:1")
        assert store.run(incr()) == 1
        with pair.frozen_replica():
            thread, ended = in_thread(lambda: store.run(incr()))
            eventually(lambda: pair.ask("GET", "count") == b"2", within_s=30)
            proxy.hang_up()
            thread.join(30)
    # The replies before the wait may have been on their way, or not.
    assert [type(each) for each in ended] in ([NotDurable], [ReplyLost])


def test_each_store_has_connections_of_its_own_for_waits(pair: Pair) -> None:
    plain = Store(pair.primary.url)
    by_level = stores(plain, "memory", 30)
    with pair.frozen_replica():
        thread, _ = in_thread(lambda: by_level.at("replicas:1").run(incr()))
        eventually(lambda: pair.ask("GET", "count") == b"1", within_s=30)
        assert by_level.default.run(incr()) == 2
        assert thread.is_alive()
    thread.join(30)
    assert by_level.default is by_level.at("memory") is plain
    for store in (plain, *by_level.durable):
        store.close()


def test_a_batch_of_which_a_part_failed_is_not_called_durable(
    pair: Pair, open_durable: OpenDurable
) -> None:
    def plan() -> Plan[None]:
        yield (incr(),)
        raise BatchIncomplete("orders", ["a", None])

    store = open_durable(pair.primary.url, "replicas:2", timeout_s=0.2)
    with pytest.raises(NotDurable) as failed:
        store.follow(plan())
    assert failed.value.result == ["a", None]
    with pytest.raises(BatchIncomplete):
        open_durable(pair.primary.url, "replicas:1").follow(plan())


def test_a_plan_sees_what_it_did_and_fails_at_its_end(
    pair: Pair, open_durable: OpenDurable
) -> None:
    def plan() -> Plan[list[int]]:
        first = yield (incr(), incr())
        second = yield iter((incr(),))
        return results([*first, *second])

    store = open_durable(pair.primary.url, "replicas:2", timeout_s=0.2)
    with pytest.raises(NotDurable) as failed:
        store.follow(plan())
    assert failed.value.result == [1, 2, 3]
    assert open_durable(pair.primary.url, "replicas:1").follow(plan()) == [4, 5, 6]


@pytest.mark.slow  # a confirmation takes nearly two seconds
def test_with_everysec_a_call_is_confirmed_by_an_fsync_that_succeeded_after_it(
    open_durable: OpenDurable, tmp_path: Path
) -> None:
    if reason := preload.unavailable():
        pytest.skip(reason)
    options = ("--appendonly", "yes", "--appendfsync", "everysec")
    with (
        DiskFault(tmp_path / "control") as disk,
        Server(binaries.valkey(), *options, environ=disk.environ) as server,
    ):
        disk.move_to(server.dir / "appendonlydir")
        store = open_durable(server.url, "disk")
        assert store.run(incr()) == 1
        disk.unsynced()
        with pytest.raises(NotDurable, match="cannot write its append-only file"):
            store.run(incr())
