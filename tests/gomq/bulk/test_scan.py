"""Reading GOMQ's lists page by page."""

from __future__ import annotations

import pytest
import redis

from tambomq.errors import WrongType
from tambomq.gomq import keys
from tambomq.gomq.bulk import scan as scan_ops
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as message_ops
from tambomq.store.call import Call
from tambomq.store.sync import Store

P = "127.0.0.1:5467"


def all_of(store: Store, page: type | object) -> list[str]:
    found, cursor = set[str](), b"0"
    while True:
        call: Call[tuple[bytes, list[str]]] = page(cursor)  # type: ignore[operator]
        cursor, names = store.run(call)
        found.update(names)
        if cursor == b"0":
            return sorted(found)


def test_an_empty_database_has_no_keys(each: Store) -> None:
    assert all_of(each, scan_ops.queues) == []
    assert all_of(each, scan_ops.subscribed) == []
    assert each.run(scan_ops.consumers("k")) == []
    assert each.run(scan_ops.length(keys.queue("k"))) == 0
    assert each.run(scan_ops.page(keys.queue("k"), 0, 10)) == []
    assert each.run(scan_ops.last_action(P)) is None


def test_keys_with_messages_and_with_subscribers_are_found(each: Store) -> None:
    each.run(message_ops.push("full", [b"1"]))
    each.run(message_ops.subscribe("a_b", "c", P, Options()))
    assert all_of(each, scan_ops.queues) == ["full"]
    assert all_of(each, scan_ops.subscribed) == ["a_b"]
    assert each.run(scan_ops.consumers("a_b")) == ["c"]
    assert each.run(scan_ops.peers("c")) == [P]
    last = each.run(scan_ops.last_action(P))
    assert last is not None
    assert last % 1000 == 0


def test_keys_that_are_not_gomq_queues_are_skipped(each: Store, each_db: redis.Redis) -> None:
    each_db.set("QUEUE_text", "no list")
    each_db.rpush("QUEUE_", "a list without a key")
    each_db.rpush(b"QUEUE_\xff", "no text")
    each_db.rpush("QUEUE_QUEUE_", "odd, but a key")
    each_db.sadd("SUBSCRIBED_KEYS", "k", "QUEUE_", b"QUEUE_\xff", "QUEUE_k")
    assert all_of(each, scan_ops.queues) == ["QUEUE_"]
    assert all_of(each, scan_ops.subscribed) == ["k"]


def test_thousands_of_keys_are_all_found(each: Store) -> None:
    each.run(message_ops.push_all({f"k{n}": [b"1"] for n in range(3000)}))
    assert len(all_of(each, scan_ops.queues)) == 3000


def test_pages_go_by_index(each: Store) -> None:
    each.run(message_ops.push("k", [b"%d" % n for n in range(10)]))
    assert each.run(scan_ops.page(keys.queue("k"), 3, 2)) == [b"3", b"4"]
    assert each.run(scan_ops.page(keys.queue("k"), 9, 5)) == [b"9"]
    assert each.run(scan_ops.page(keys.queue("k"), 10, 5)) == []


@pytest.mark.parametrize("value", ["soon", "nan", "inf", ""])
def test_an_invalid_last_action_is_none(store: Store, db: redis.Redis, value: str) -> None:
    db.set(keys.last_action(P), value)
    assert store.run(scan_ops.last_action(P)) is None


def test_another_type_is_an_error(store: Store, db: redis.Redis) -> None:
    db.set("QUEUE_k", "no list")
    with pytest.raises(WrongType, match="QUEUE_k"):
        store.run(scan_ops.length(keys.queue("k")))
