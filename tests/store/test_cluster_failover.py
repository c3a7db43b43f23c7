"""Both stores, and RSMQ, on a cluster where the replica of a killed node takes over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tambomq.errors import ReplyLost
from tambomq.rsmq import AsyncRsmq, Rsmq
from tambomq.store.call import Call
from tambomq.store.roundtrip import slot_of
from tests.servers import eventually
from tests.servers.cluster import Cluster
from tests.store.conftest import Open
from tests.store.twins import add, get, incr

pytestmark = pytest.mark.slow

HOME = 1
"""The node that has a replica. They swap roles from test to test."""
PATIENCE_S = 120
WITHIN_S = 60


@pytest.fixture(scope="module")
def replicated() -> Iterator[Cluster]:
    with Cluster(replicated=[HOME]) as formed:
        yield formed


@pytest.fixture
def cluster(replicated: Cluster) -> Iterator[Cluster]:
    """A cluster in which all nodes run, before and after the test."""
    yield replicated
    for node, server in enumerate(replicated.nodes):
        if not server.is_running:
            replicated.restart(node)


_NUMBERS = count()


def new_key(cluster: Cluster, home: int = HOME) -> str:
    """A key that no other test has, in a slot of *home*."""
    return next(key for i in _NUMBERS if cluster.home(slot_of(key := f"key-{i}")) == home)


def members(key: str) -> Call[set[str]]:
    def decode(reply: list[bytes]) -> set[str]:
        return {member.decode() for member in reply}

    return Call("SMEMBERS", (key,), (), decode, repeatable=True)


def test_sends_go_on_when_the_replica_takes_over(cluster: Cluster, open_store: Open) -> None:
    store, key = open_store(cluster.url(0), patience_s=PATIENCE_S), new_key(cluster)
    sent = [store.run(add(f"before-{n}", key)) for n in range(20)]
    cluster.replicate(HOME, new_key(cluster))
    killed = cluster.kill_master(HOME)
    sent += [store.run(add(f"after-{n}", key)) for n in range(20)]
    assert cluster.master(HOME) != killed
    assert store.run(members(key)) == set(sent)


def test_calls_to_all_nodes_keep_their_order_while_one_is_replaced(
    cluster: Cluster, open_store: Open
) -> None:
    store = open_store(cluster.url(0), patience_s=PATIENCE_S)
    keys = [new_key(cluster, n % 3) for n in range(30)]
    assert store.run_all([add("a", key) for key in keys]) == ["a"] * 30
    cluster.replicate(HOME, new_key(cluster))
    cluster.kill_master(HOME)
    assert store.run_all([add(key, key) for key in keys]) == keys
    assert store.run_all([members(key) for key in keys]) == [{"a", key} for key in keys]


def test_a_call_that_cannot_be_repeated_runs_once_or_raises(
    cluster: Cluster, open_store: Open
) -> None:
    store, key = open_store(cluster.url(0), patience_s=PATIENCE_S), new_key(cluster)
    assert store.run(incr(key)) == 1
    cluster.replicate(HOME, new_key(cluster))
    cluster.kill_master(HOME)
    confirmed = [1]
    for _ in range(10):
        try:
            confirmed.append(store.run(incr(key)))
        except ReplyLost:
            continue
    # The killed node took at most one with it, and nothing was repeated.
    assert confirmed == list(range(1, len(confirmed) + 1))
    assert len(confirmed) >= 10
    assert int(store.run(get(key)) or 0) == confirmed[-1]


def test_a_first_node_that_died_is_replaced_by_the_others_of_the_url(
    cluster: Cluster, open_store: Open
) -> None:
    store = open_store(cluster.url(cluster.master(HOME), 2), patience_s=PATIENCE_S)
    key = new_key(cluster)
    assert store.run(add("a", key)) == "a"
    cluster.replicate(HOME, new_key(cluster))
    cluster.kill_master(HOME)
    assert store.run(add("b", key)) == "b"
    assert store.run(members(key)) == {"a", "b"}


def test_nodes_that_redirections_named_replace_the_only_one_of_the_url(
    cluster: Cluster, open_store: Open
) -> None:
    store = open_store(cluster.url(cluster.master(HOME)), patience_s=PATIENCE_S)
    key, other = new_key(cluster), new_key(cluster, 2)
    assert store.run_all([add("a", key), add("a", other)]) == ["a", "a"]
    cluster.replicate(HOME, new_key(cluster))
    cluster.kill_master(HOME)
    assert store.run(add("b", key)) == "b"
    assert store.run(members(key)) == {"a", "b"}
    # The first node stays away: what needs no key goes to another, on one connection to each.
    for _ in range(10):
        assert store.run(Call("PING", (), (), bool, repeatable=True))
    for node in (0, 2, cluster.master(HOME)):
        assert str(cluster.ask(node, "CLIENT", "LIST")).count("tambomq") <= 2


def test_a_node_that_returns_as_a_replica_redirects(cluster: Cluster, open_store: Open) -> None:
    killed, key = cluster.master(HOME), new_key(cluster)
    # Connected to both, since it is known which node has the key.
    store = open_store(cluster.url(killed, 0), patience_s=PATIENCE_S)
    assert store.run(add("a", key)) == "a"
    cluster.replicate(HOME, new_key(cluster))
    cluster.kill_master(HOME)
    cluster.wait_promoted(HOME)
    cluster.restart(killed)
    assert store.run(add("b", key)) == "b"
    later = open_store(cluster.url(killed), patience_s=PATIENCE_S)
    assert later.run(add("c", key)) == "c"
    assert later.run_all([members(key)] * 2) == [{"a", "b", "c"}] * 2


def test_roles_that_are_swapped_while_all_is_well_are_followed(
    cluster: Cluster, open_store: Open
) -> None:
    store, key = open_store(cluster.url(0), patience_s=PATIENCE_S), new_key(cluster)
    assert [store.run(incr(key)) for _ in range(3)] == [1, 2, 3]
    before = cluster.master(HOME)
    cluster.swap(HOME)
    assert cluster.master(HOME) != before
    assert [store.run(incr(key)) for _ in range(3)] == [4, 5, 6]


def test_rsmq_sends_on_and_has_all_that_was_confirmed(cluster: Cluster) -> None:
    ns = "{" + new_key(cluster) + "}"
    with Rsmq(cluster.url(0), ns=ns, patience_s=PATIENCE_S) as rsmq:
        rsmq.create_queue("q", vt=0)
        confirmed = set(rsmq.send_messages("q", [f"before-{n}" for n in range(20)]))
        cluster.replicate(HOME, new_key(cluster))
        cluster.kill_master(HOME)
        for n in range(20):
            confirmed.add(_sent(rsmq, f"after-{n}"))
        stored = {message.id for message in rsmq.peek_messages("q", 100)}
        assert confirmed <= stored
        received = rsmq.receive_message("q")
        assert received is not None
        assert rsmq.delete_message("q", received.id)


def _sent(rsmq: Rsmq, text: str) -> str:
    """Send, again if it is unknown whether the killed node had it."""
    while True:
        try:
            return rsmq.send_message("q", text)
        except ReplyLost:
            continue


async def test_a_long_receive_goes_on_at_the_replica(cluster: Cluster) -> None:
    ns = "{" + new_key(cluster) + "}"
    url = cluster.url(cluster.master(HOME), 0)
    async with AsyncRsmq(url, ns=ns, realtime=True, patience_s=PATIENCE_S) as rsmq:
        await rsmq.create_queue("q")
        cluster.replicate(HOME, new_key(cluster))
        sender = threading.Thread(target=_kill_and_send, args=(cluster, ns))
        sender.start()
        message = await rsmq.receive_message("q", wait=PATIENCE_S)
        sender.join()
    assert message is not None
    assert message.text == "a"


def _kill_and_send(cluster: Cluster, ns: str) -> None:
    def is_subscribed() -> Any:
        return any(cluster.ask(node, "PUBSUB", "CHANNELS") for node in (0, cluster.master(HOME)))

    eventually(is_subscribed, within_s=WITHIN_S)
    cluster.kill_master(HOME)
    cluster.wait_promoted(HOME)
    with Rsmq(cluster.url(0), ns=ns, realtime=True, patience_s=PATIENCE_S) as rsmq:
        rsmq.send_message("q", "a")
