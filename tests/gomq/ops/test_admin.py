"""Overviews of all keys, consumers and peers of GOMQ."""

from __future__ import annotations

import pytest
import redis

from tambomq.errors import WrongType
from tambomq.gomq.model import Options
from tambomq.gomq.ops import admin as admin_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.admin import ConsumerOverview, KeyOverview
from tambomq.store.features import is_cluster
from tambomq.store.sync import Store
from tests.servers import Server, binaries

P, Q = "127.0.0.1:5467", "127.0.0.1:5468"


def join(store: Store, key: str, consumer: str, peer: str) -> None:
    store.run(message_ops.subscribe(key, consumer, peer, Options()))


def test_an_empty_database_has_nothing_to_show(each: Store) -> None:
    assert each.follow(admin_ops.overview()) == []
    assert each.follow(admin_ops.all_consumers()) == []
    assert each.run(admin_ops.subscribed("c")) == []
    assert each.run(admin_ops.ping())
    assert each.run(is_cluster()) is False


def test_a_cluster_is_known_by_what_it_says_of_itself() -> None:
    with Server(binaries.valkey(), "--cluster-enabled", "yes") as node:
        store = Store(node.url)
        assert store.run(is_cluster()) is True
        store.close()


def test_every_key_is_shown_with_the_queue_lengths_of_its_peers(each: Store) -> None:
    join(each, "b", "c", P)
    join(each, "b", "c", Q)
    join(each, "a_b", "d", P)
    each.run(message_ops.push("b", [b"1", b"2"]))
    each.run(message_ops.dispatch("b"))
    each.run(message_ops.push("b", [b"3"]))
    each.run(message_ops.observe("c", Q, Options(), limit=1))
    each.run(message_ops.push("nobody", [b"4"]))
    assert each.follow(admin_ops.overview()) == [
        KeyOverview("a_b", 0, [ConsumerOverview("d", {P: 0})]),
        KeyOverview("b", 1, [ConsumerOverview("c", {P: 2, Q: 1})]),
        KeyOverview("nobody", 1, []),
    ]
    assert each.follow(admin_ops.all_consumers()) == ["c", "d"]
    assert each.run(admin_ops.subscribed("c")) == ["b"]


def test_thousands_of_keys_are_all_found(store: Store) -> None:
    store.run(message_ops.push_all({f"k{n}": [b"1"] for n in range(3000)}))
    assert len(store.follow(admin_ops.overview())) == 3000


def test_looking_changes_nothing(store: Store, db: redis.Redis) -> None:
    join(store, "k", "c", P)
    store.run(message_ops.push("k", [b"1"]))
    before = {name: db.dump(name) for name in db.scan_iter()}
    store.follow(admin_ops.overview())
    store.follow(admin_ops.all_consumers())
    assert {name: db.dump(name) for name in db.scan_iter()} == before


@pytest.mark.parametrize("name", ["QUEUE_k", "CONSUMERS_k", "PEERS_c", f"MESSAGES_k_c_{P}"])
def test_keys_of_another_type_are_shown_as_unknown(
    store: Store, db: redis.Redis, name: str
) -> None:
    for key in "kl":
        join(store, key, "c", P)
    join(store, "l", "d", Q)
    db.delete(name)
    db.hset(name, "of another", "type")
    k, other = store.follow(admin_ops.overview())
    assert (k.name, k.waiting) == ("k", None if name == "QUEUE_k" else 0)
    assert (other.name, other.waiting) == ("l", 0)
    assert ConsumerOverview("d", {Q: 0}) in other.consumers
    if name.startswith("MESSAGES"):
        assert k.consumers == [ConsumerOverview("c", {P: None})]
    assert "d" in store.follow(admin_ops.all_consumers())


def test_subscribed_keys_of_another_type_are_an_error(store: Store, db: redis.Redis) -> None:
    db.set("SUBSCRIBED_KEYS", "no set")
    with pytest.raises(WrongType):
        store.follow(admin_ops.all_consumers())


def test_names_that_are_not_utf8_are_skipped(store: Store, db: redis.Redis) -> None:
    join(store, "k", "c", P)
    db.sadd("SUBSCRIBED_KEYS", b"QUEUE_\xff")
    db.sadd("CONSUMERS_k", b"\xff")
    db.rpush(b"QUEUE_\xfe", "1")
    assert store.follow(admin_ops.overview()) == [
        KeyOverview("k", 0, [ConsumerOverview("c", {P: 0})])
    ]
    assert store.follow(admin_ops.all_consumers()) == ["c"]
