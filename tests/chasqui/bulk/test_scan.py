"""Calls that page through whole queues, on every kind of server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tambomq.chasqui.bulk import scan as scan_ops
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.errors import StoreError, WrongType
from tambomq.store.sync import Store
from tests.servers import Server


@pytest.fixture
def store(each_server: Server) -> Iterator[Store]:
    opened = Store(each_server.url)
    yield opened
    opened.close()


@pytest.fixture
def db(each_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(each_server.url) as client:
        yield client


def add(db: redis.Redis, key: str, *ids: str) -> None:
    for id in ids:
        db.xadd(key, {"d": id}, id=id)


def test_the_ends_and_the_length_of_a_stream_are_returned(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    assert store.run(scan_ops.first(keys.stream)) is None
    assert store.run(scan_ops.last(keys.stream)) is None
    add(db, keys.stream, "5-0", "5-1", "9-0")
    assert store.run(scan_ops.first(keys.stream)) == "5-0"
    assert store.run(scan_ops.last(keys.stream)) == "9-0"
    assert store.run(scan_ops.first(keys.stream, "5-1", "8-0")) == "5-1"
    assert store.run(scan_ops.last(keys.stream, "5-0", "8-0")) == "5-1"
    assert store.run(scan_ops.length(keys.stream)) == 3


def test_both_neighbours_of_a_point_are_found(store: Store, db: redis.Redis, keys: Keys) -> None:
    add(db, keys.stream, "5-0", "5-7", "9-0")
    found = store.run(scan_ops.around(keys.stream, [1, 5, 6, 9, 10, 2**64 - 1]))
    assert found == [
        (None, b"5-0"),
        (None, b"5-0"),
        (b"5-7", b"9-0"),
        (b"5-7", b"9-0"),
        (b"9-0", None),
        (b"9-0", None),
    ]


def test_a_missing_stream_has_no_entries_around_a_point(store: Store, keys: Keys) -> None:
    assert store.run(scan_ops.around(keys.stream, [1, 2])) == [(None, None)] * 2


def test_the_next_page_begins_after_the_last_id(store: Store, db: redis.Redis, keys: Keys) -> None:
    add(db, keys.stream, "1-0", "2-0", "3-0")
    assert store.run(scan_ops.page(keys.stream, "-", "+", 2)) == [
        [b"1-0", [b"d", b"1-0"]],
        [b"2-0", [b"d", b"2-0"]],
    ]
    assert [id for id, _ in store.run(scan_ops.page(keys.stream, "(2-0", "3-0", 2))] == [b"3-0"]


def test_an_entry_that_is_gone_has_no_fields(store: Store, db: redis.Redis, keys: Keys) -> None:
    add(db, keys.stream, "1-0")
    assert store.run(scan_ops.entry(keys.stream, b"1-0")) == [b"1-0", [b"d", b"1-0"]]
    assert store.run(scan_ops.entry(keys.stream, b"2-0")) == [b"2-0", None]


def test_entries_that_a_group_has_read_are_pending(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    with pytest.raises(StoreError, match="NOGROUP"):
        store.run(scan_ops.pending_count(keys, GROUP))
    add(db, keys.stream, "1-0", "2-0", "3-0")
    db.xgroup_create(keys.stream, GROUP, "0")
    assert store.run(scan_ops.pending_count(keys, GROUP)) == 0
    assert store.run(scan_ops.pending(keys, GROUP, "-", "+")) == []
    db.xreadgroup(GROUP, "ada", {keys.stream: ">"}, count=2)
    assert store.run(scan_ops.pending_count(keys, GROUP)) == 2
    found = store.run(scan_ops.pending(keys, GROUP, "(1-0", "+"))
    assert [(id, consumer, times) for id, consumer, _, times in found] == [(b"2-0", b"ada", 1)]


def test_members_come_with_their_scores(store: Store, db: redis.Redis, keys: Keys) -> None:
    db.zadd(keys.delayed, {"a": 1, "b": 2.5, "c": 2.5, "d": float("inf")})
    assert store.run(scan_ops.count(keys.delayed, "2", "+inf")) == 3
    assert store.run(scan_ops.score_at(keys.delayed, "-inf", "+inf", 1)) == 2
    assert store.run(scan_ops.score_at(keys.delayed, "-inf", "+inf", 4)) is None
    found = store.run(scan_ops.members(keys.delayed, "-inf", "+inf", 1, 2))
    assert found == ([b"b", b"c"], [b"2.5", b"2.5"])
    assert store.run(scan_ops.members(keys.delayed, "-inf", "+inf", 3))[1] == [b"inf"]


@pytest.mark.parametrize(
    ("score", "ms"), [(b"2.5", 2), (b"-0.5", -1), (b"inf", 2**53), (b"-inf", -(2**53))]
)
def test_a_score_is_a_millisecond(score: bytes, ms: int) -> None:
    assert scan_ops.moment(score) == ms


def test_a_spec_has_a_body_and_a_count(store: Store, db: redis.Redis, keys: Keys) -> None:
    db.hset(keys.spec("k"), mapping={"spec": b"\x90", "fired": 3})
    assert store.run(scan_ops.spec(keys, "k")) == [b"\x90", b"3"]
    assert store.run(scan_ops.spec(keys, "other")) == [None, None]


def test_only_results_of_the_queue_are_found(store: Store, db: redis.Redis, keys: Keys) -> None:
    db.set(keys.result("a"), b"\x01", px=60_000)
    db.set(keys.result("b:c"), b"\x02")
    db.set(keys.progress("a"), "50")
    db.set(Keys(f"{keys.queue}?").result("z"), b"\x03")
    db.set(f"{keys.result('')}".encode() + b"\xff", b"\x04")
    db.lpush(keys.result("list"), "x")
    cursor, found = store.run(scan_ops.results_page(keys, b"0"))
    assert (cursor, sorted(found)) == (b"0", ["a", "b:c"])
    assert store.run(scan_ops.result(keys, "b:c")) == b"\x02"
    assert store.run(scan_ops.result(keys, "gone")) is None
    assert 0 < (store.run(scan_ops.result_expiry(keys, "a")) or 0) <= 60_000
    assert store.run(scan_ops.result_expiry(keys, "b:c")) is None


def test_queues_are_found_by_five_of_their_keys(store: Store, db: redis.Redis, keys: Keys) -> None:
    add(db, keys.stream, "1-0")
    add(db, keys.events, "1-0")
    db.zadd(keys.delayed, {"m": 1})
    db.zadd(keys.repeat, {"k": 1})
    add(db, keys.dlq, "1-0")
    db.set(keys.paused, "1")
    db.set("other", "x")
    cursor, found = store.run(scan_ops.names(b"0"))
    assert (cursor, sorted(found)) == (b"0", sorted(keys.traces))
    assert store.run(scan_ops.exists("nobody", keys.stream))
    assert not store.run(scan_ops.exists("nobody"))


def test_a_key_of_another_type_is_reported_by_its_name(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    for key in (keys.stream, keys.delayed, keys.result("a"), keys.spec("k")):
        db.lpush(key, "x")
    calls: list[Any] = [
        scan_ops.length(keys.stream),
        scan_ops.around(keys.stream, [5]),
        scan_ops.page(keys.stream, "-", "+"),
        scan_ops.pending_count(keys, GROUP),
        scan_ops.count(keys.delayed, "-inf", "+inf"),
        scan_ops.result(keys, "a"),
        scan_ops.spec(keys, "k"),
    ]
    for call in calls:
        with pytest.raises(WrongType, match="of another type"):
            store.run(call)


def test_the_time_of_the_server_is_returned(store: Store, db: redis.Redis) -> None:
    seconds, micros = db.time()
    assert 0 <= store.run(scan_ops.now()) - (seconds * 1000 + micros // 1000) < 60_000
