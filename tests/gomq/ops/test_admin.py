"""Looking at all of GOMQ at once."""

from __future__ import annotations

import pytest
import redis

from tambomq.errors import WrongType
from tambomq.gomq import admin_ops, ops
from tambomq.gomq.admin_ops import Consumer, Key
from tambomq.gomq.model import Options
from tambomq.store.features import is_cluster
from tambomq.store.sync import Store
from tests.servers import Server, binaries

P, Q = "127.0.0.1:5467", "127.0.0.1:5468"


def join(store: Store, key: str, consumer: str, peer: str) -> None:
    store.run(ops.subscribe(key, consumer, peer, Options()))


def test_an_empty_database_has_nothing_to_show(each: Store) -> None:
    assert each.follow(admin_ops.overview()) == []
    assert each.follow(admin_ops.everyone()) == []
    assert each.run(admin_ops.subscribed("c")) == []
    assert each.run(admin_ops.ping())
    assert each.run(is_cluster()) is False


def test_a_cluster_is_known_by_what_it_says_of_itself() -> None:
    with Server(binaries.valkey(), "--cluster-enabled", "yes") as node:
        store = Store(node.url)
        assert store.run(is_cluster()) is True
        store.close()


def test_every_key_is_shown_with_what_waits_for_whom(each: Store) -> None:
    join(each, "b", "c", P)
    join(each, "b", "c", Q)
    join(each, "a_b", "d", P)
    each.run(ops.push("b", [b"1", b"2"]))
    each.run(ops.dispatch("b"))
    each.run(ops.push("b", [b"3"]))
    each.run(ops.observe("c", Q, Options(), limit=1))
    each.run(ops.push("nobody", [b"4"]))
    assert each.follow(admin_ops.overview()) == [
        Key("a_b", 0, [Consumer("d", {P: 0})]),
        Key("b", 1, [Consumer("c", {P: 2, Q: 1})]),
        Key("nobody", 1, []),
    ]
    assert each.follow(admin_ops.everyone()) == ["c", "d"]
    assert each.run(admin_ops.subscribed("c")) == ["b"]


def test_thousands_of_keys_are_all_found(store: Store) -> None:
    store.run(ops.push_all({f"k{n}": [b"1"] for n in range(3000)}))
    assert len(store.follow(admin_ops.overview())) == 3000


def test_looking_changes_nothing(store: Store, db: redis.Redis) -> None:
    join(store, "k", "c", P)
    store.run(ops.push("k", [b"1"]))
    before = {name: db.dump(name) for name in db.scan_iter()}
    store.follow(admin_ops.overview())
    store.follow(admin_ops.everyone())
    assert {name: db.dump(name) for name in db.scan_iter()} == before


@pytest.mark.parametrize("name", ["QUEUE_k", "CONSUMERS_k", "PEERS_c", f"MESSAGES_k_c_{P}"])
def test_what_is_of_another_type_is_shown_as_unknown(
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
    assert Consumer("d", {Q: 0}) in other.consumers
    if name.startswith("MESSAGES"):
        assert k.consumers == [Consumer("c", {P: None})]
    assert "d" in store.follow(admin_ops.everyone())


def test_a_set_of_keys_that_is_no_set_is_an_error(store: Store, db: redis.Redis) -> None:
    db.set("SUBSCRIBED_KEYS", "no set")
    with pytest.raises(WrongType):
        store.follow(admin_ops.everyone())


def test_names_that_are_no_text_are_left_out(store: Store, db: redis.Redis) -> None:
    join(store, "k", "c", P)
    db.sadd("SUBSCRIBED_KEYS", b"QUEUE_\xff")
    db.sadd("CONSUMERS_k", b"\xff")
    db.rpush(b"QUEUE_\xfe", "1")
    assert store.follow(admin_ops.overview()) == [Key("k", 0, [Consumer("c", {P: 0})])]
    assert store.follow(admin_ops.everyone()) == ["c"]
