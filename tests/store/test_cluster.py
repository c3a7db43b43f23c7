"""Both stores, and RSMQ, on a cluster of three nodes."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.errors import StoreError, StoreUnavailable
from tambomq.rsmq import AsyncRsmq, Rsmq
from tambomq.store.call import Call
from tambomq.store.primary.slot_map import SlotMap
from tambomq.store.roundtrip import slot_of
from tambomq.store.sync import Store
from tests.servers import eventually
from tests.servers.cluster import Cluster
from tests.servers.ports import free_port
from tests.store.conftest import Open
from tests.store.twins import AnyStore, get, incr

TAGGED = "{rsmq}"


def key_on(cluster: Cluster, node: int, name: str = "key") -> str:
    """A key that *node* is the home of."""
    return next(key for i in range(1000) if cluster.home(slot_of(key := f"{name}-{i}")) == node)


def put(key: str, value: str) -> Call[Any]:
    return Call("SET", (key,), (value,), decode=lambda reply: reply, repeatable=True)


@pytest.fixture
def closed_port() -> int:
    return free_port()


def test_one_node_is_enough_to_find_all(cluster: Cluster, open_store: Open) -> None:
    store = open_store(cluster.nodes[0].url)
    for node in range(3):
        key = key_on(cluster, node)
        assert store.run(incr(key)) == 1
        assert store.run(incr(key)) == 2
        assert cluster.ask(node, "GET", key) == "2"


def test_the_node_of_a_slot_is_looked_up_once(cluster: Cluster, open_store: Open) -> None:
    store = open_store(cluster.nodes[0].url)
    key = key_on(cluster, 2)
    store.run(put(key, "1"))
    cluster.ask(0, "CONFIG", "RESETSTAT")
    for _ in range(5):
        store.run(get(key))
    stats = cluster.ask(0, "INFO", "errorstats")
    assert "MOVED" not in str(stats)


def test_calls_to_all_nodes_are_one_round_trip_with_replies_in_order(
    cluster: Cluster, open_store: Open
) -> None:
    store = open_store(cluster.nodes[0].url)
    keys = [f"key-{i}" for i in range(60)]
    assert store.run_all([incr(key) for key in keys]) == [1] * 60
    store.run_all([put(key, key) for key in keys])
    assert store.run_all([get(key) for key in keys]) == [key.encode() for key in keys]


def test_a_first_node_that_is_down_is_passed_over(
    cluster: Cluster, open_store: Open, closed_port: int
) -> None:
    up = cluster.nodes[1].port
    store = open_store(f"redis://127.0.0.1:{closed_port},127.0.0.1:{up}", patience_s=0)
    for node in range(3):
        assert store.run(incr(key_on(cluster, node))) == 1


def test_first_nodes_that_are_all_down_are_unavailable(open_store: Open, closed_port: int) -> None:
    store = open_store(f"redis://127.0.0.1:{closed_port},localhost:{closed_port}", patience_s=0)
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{closed_port},localhost:{closed_port}"):
        store.run(get("key"))


def test_a_slot_that_moves_between_two_calls_is_followed(
    cluster: Cluster, open_store: Open
) -> None:
    store = open_store(cluster.nodes[0].url)
    key = key_on(cluster, 0, "{moving}" if cluster.home(slot_of("{moving}")) == 0 else "moving")
    assert store.run(incr(key)) == 1
    begin_to_move(cluster, key, old=0, new=1)
    try:
        # The key is still at the old home.
        assert store.run(incr(key)) == 2
        carry(cluster, key, old=0, new=1)
        # The old home says ASK, and the new one wants ASKING; its scripts are not known there.
        assert store.run(incr(key)) == 3
        both: list[Call[Any]] = [incr(key), get(key)]
        assert store.run_all(both) == [4, b"4"]
        settle(cluster, key, 1)
        assert store.run(incr(key)) == 5
        assert cluster.ask(1, "GET", key) == "5"
    finally:
        cluster.ask(1, "DEL", key)
        settle(cluster, key, 0)


def test_a_node_that_went_down_is_removed_from_the_slot_map(
    cluster: Cluster, open_store: Open, closed_port: int
) -> None:
    store = open_store(cluster.nodes[0].url)
    key = key_on(cluster, 1)
    inner: Any = getattr(store, "store", store)
    inner._slot_map = SlotMap().with_moved({slot_of(key): ("127.0.0.1", closed_port)})
    assert store.run(incr(key)) == 1
    assert inner._slot_map[slot_of(key)] == ("127.0.0.1", cluster.nodes[1].port)


def test_a_first_node_that_goes_down_later_is_not_missed(
    cluster: Cluster, open_store: Open, closed_port: int
) -> None:
    store: AnyStore = open_store(f"redis://127.0.0.1:{closed_port}", patience_s=0)
    inner: Any = getattr(store, "store", store)
    inner._slot_map = SlotMap().with_moved({0: ("127.0.0.1", cluster.nodes[2].port)})
    assert store.run(incr(key_on(cluster, 1))) == 1


def test_a_node_that_lost_all_its_slots_is_asked_again_if_no_other_answers(
    cluster: Cluster, open_store: Open, closed_port: int
) -> None:
    store: AnyStore = open_store(f"redis://127.0.0.1:{closed_port}", patience_s=0)
    inner: Any = getattr(store, "store", store)
    node = ("127.0.0.1", cluster.nodes[2].port)
    inner._slot_map = SlotMap().with_moved({0: node}).without(node)
    assert inner.is_cluster
    assert store.run(incr(key_on(cluster, 1))) == 1


def test_keys_of_different_slots_are_refused_with_advice(cluster: Cluster) -> None:
    with (
        Rsmq(cluster.nodes[0].url, ns="rsmq") as rsmq,
        pytest.raises(StoreError, match=r"put the namespace in braces, such as \{tag\}"),
    ):
        rsmq.create_queue("orders")


def test_rsmq_works_on_a_cluster_with_a_namespace_in_braces(cluster: Cluster) -> None:
    with Rsmq(cluster.nodes[0].url, ns=TAGGED, realtime=True) as rsmq:
        rsmq.create_queue("orders")
        assert rsmq.list_queues() == ["orders"]
        first = rsmq.send_message("orders", "one")
        more = rsmq.send_messages("orders", ["two", "three"])
        assert [message.text for message in rsmq.peek_messages("orders", 9)] == [
            *("one", "two", "three")
        ]
        received = rsmq.receive_message("orders")
        assert received is not None
        assert (received.id, received.text) == (first, "one")
        assert rsmq.delete_message("orders", first)
        batch = rsmq.receive_messages("orders", 5)
        assert [message.id for message in batch] == more
        assert rsmq.receive_message("orders", wait=0.05) is None
        assert rsmq.get_queue_attributes("orders").totalrecv == 3


async def test_asyncio_rsmq_works_on_a_cluster_too(cluster: Cluster) -> None:
    async with AsyncRsmq(cluster.nodes[1].url, ns=TAGGED, realtime=True) as rsmq:
        await rsmq.create_queue("orders")
        ids = await rsmq.send_messages("orders", ["one", "two"])
        received = await rsmq.receive_messages("orders", 2, wait=1)
        assert [message.id for message in received] == ids
        assert await rsmq.delete_messages("orders", ids)
        assert await rsmq.receive_message("orders", wait=0.05) is None


def test_a_waiting_receiver_is_notified_by_a_sender_at_another_node(cluster: Cluster) -> None:
    sender = Store(cluster.nodes[1].url)
    listener = Store(cluster.nodes[2].url)
    with listener.listen("news") as news:
        sender.run(Call("PUBLISH", (), ("news", "x"), decode=int))
        assert news.wait(30)
    sender.close()
    listener.close()


def begin_to_move(cluster: Cluster, key: str, *, old: int, new: int) -> None:
    slot = slot_of(key)
    cluster.ask(new, "CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(old))
    cluster.ask(old, "CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(new))


def carry(cluster: Cluster, key: str, *, old: int, new: int) -> None:
    cluster.ask(old, "MIGRATE", "127.0.0.1", cluster.nodes[new].port, key, 0, 5000)


def settle(cluster: Cluster, key: str, home: int) -> None:
    # Else what the old home says until it is asked wins, and the new one believes it for ever.
    cluster.ask(home, "CLUSTER", "BUMPEPOCH")
    # The new home first, so that there is always one.
    for node in sorted(range(3), key=lambda node: node != home):
        cluster.ask(node, "CLUSTER", "SETSLOT", slot_of(key), "NODE", cluster.id(home))
    # If news of that epoch came while the slot moves again, it would end that move.
    for node in range(3):
        eventually(lambda node=node: is_known_at(cluster, node, key, home))  # type: ignore[misc]
        eventually(lambda node=node: epoch_at(cluster, node, home) == epoch_at(cluster, home, home))  # type: ignore[misc]


def epoch_at(cluster: Cluster, node: int, home: int) -> str:
    """The configuration epoch of *home*, as far as *node* has heard of it."""
    rows = [line.split() for line in cluster.ask(node, "CLUSTER", "NODES").splitlines()]
    return str(next(row[6] for row in rows if row[0] == cluster.id(home)))


def is_known_at(cluster: Cluster, node: int, key: str, home: int) -> bool:
    """Whether *node* owns the slot of the key."""
    try:
        cluster.ask(node, "EXISTS", key)
    except redis.exceptions.MovedError as moved:
        return moved.port == cluster.nodes[home].port
    return node == home
