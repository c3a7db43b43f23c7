"""Reading a queue of RSMQ page by page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tambomq.errors import InvalidFormat, WrongType
from tambomq.rsmq import Rsmq
from tambomq.rsmq.bulk import scan as scan_ops
from tambomq.rsmq.keys import Keys
from tambomq.store.call import Call
from tambomq.store.sync import Store
from tests.servers import Server

KEYS = Keys()


@pytest.fixture
def store(each_server: Server) -> Iterator[Store]:
    opened = Store(each_server.url)
    yield opened
    opened.close()


@pytest.fixture
def queue(each_server: Server) -> Iterator[Rsmq]:
    with Rsmq(each_server.url) as client:
        client.create_queue("q")
        yield client


@pytest.fixture
def each_db(each_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(each_server.url) as client:
        yield client


def test_the_scan_reports_whether_a_queue_exists(store: Store, queue: Rsmq) -> None:
    assert store.run(scan_ops.exists(KEYS, "q"))
    assert not store.run(scan_ops.exists(KEYS, "r"))
    with pytest.raises(InvalidFormat):
        scan_ops.exists(KEYS, "no name")


def test_all_names_are_found(store: Store, queue: Rsmq, each_db: redis.Redis) -> None:
    each_db.sadd("rsmq:QUEUES", *(f"q{n}" for n in range(3000)))
    found, cursor = set[bytes](), b"0"
    while True:
        cursor, page = store.run(scan_ops.names(KEYS, cursor))
        found.update(page)
        if cursor == b"0":
            break
    assert len(found) == 3001


def test_the_time_is_the_servers(store: Store) -> None:
    assert abs(store.run(scan_ops.now()) - time.time() * 1000) < 60_000


def test_pages_follow_the_scores(store: Store, queue: Rsmq, each_db: redis.Redis) -> None:
    each_db.zadd("rsmq:q", {"c": 2.5, "a": 1, "b": 1, "z": float("inf"), "y": float("-inf")})
    assert store.run(scan_ops.count(KEYS, "q", "-inf", "+inf")) == 5
    assert store.run(scan_ops.count(KEYS, "q", "(1", "+inf")) == 2
    ids, scores = store.run(scan_ops.page(KEYS, "q", "-inf", "+inf", 0))
    assert ids == [b"y", b"a", b"b", b"c", b"z"]
    assert [float(score) for score in scores] == [float("-inf"), 1, 1, 2.5, float("inf")]
    assert store.run(scan_ops.page(KEYS, "q", "1", "(2.5", 1)) == ([b"b"], [b"1"])
    assert store.run(scan_ops.score_at(KEYS, "q", "1", "+inf", 2)) == b"2.5"
    assert store.run(scan_ops.score_at(KEYS, "q", "1", "+inf", 9)) is None


def test_contents_come_in_threes_or_pairs(store: Store, queue: Rsmq, each_db: redis.Redis) -> None:
    each_db.hset("rsmq:q:Q", mapping={"a": "body", "a:rc": 2, "a:fr": 77})
    found = store.run(scan_ops.contents(KEYS, "q", [b"a", b"b"]))
    assert found == [b"body", b"2", b"77", None, None, None]
    assert store.run(scan_ops.counted_bodies(KEYS, "q", [b"a", b"b"])) == [
        b"body",
        b"2",
        None,
        None,
    ]
    each_db.hset("rsmq:q:Q", mapping={"longer": "other", "longer:rc": 3})
    found = store.run(scan_ops.counted_bodies(KEYS, "q", [b"a", b"longer"]))
    assert found == [b"body", b"2", b"other", b"3"]


def test_missing_and_present_messages_are_distinguished(
    store: Store, queue: Rsmq, each_db: redis.Redis
) -> None:
    each_db.zadd("rsmq:q", {"a": 1})
    assert store.run(scan_ops.present(KEYS, "q", [b"a", b"b"])) == [True, False]


def test_nothing_is_changed(store: Store, queue: Rsmq, each_db: redis.Redis) -> None:
    id = queue.send_message("q", "x").encode()
    before = {name: each_db.dump(name) for name in each_db.scan_iter()}
    calls: list[Call[Any]] = [
        scan_ops.names(KEYS, b"0"),
        scan_ops.page(KEYS, "q", "-inf", "+inf", 0),
        scan_ops.contents(KEYS, "q", [id]),
        scan_ops.counted_bodies(KEYS, "q", [id]),
        scan_ops.present(KEYS, "q", [id]),
    ]
    store.run_all(calls)
    assert {name: each_db.dump(name) for name in each_db.scan_iter()} == before


def test_another_type_is_an_error(store: Store, queue: Rsmq, each_db: redis.Redis) -> None:
    each_db.delete("rsmq:q")
    each_db.set("rsmq:q", "no zset")
    with pytest.raises(WrongType, match="rsmq:q"):
        store.run(scan_ops.page(KEYS, "q", "-inf", "+inf", 0))
