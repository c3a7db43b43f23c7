"""Chunks are published once and whole."""

from __future__ import annotations

from typing import cast

import pytest
import redis

from tambomq.errors import JournalFull, WrongType
from tambomq.gomq import keys, wire
from tambomq.gomq.bulk import sink as sink_ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.store.sync import Store
from tests.journal.looking import records
from tests.servers import Server

FENCE = keys.fence("FOO", "query")
JOURNAL = JournalKeys("gomq", "FOO")
RECORDED = JournalPolicy("gomq", ("FOO",), JournalBounds(max_entries=2000))
FIRST = (0, "0/0/0", "one", 60)


def push(store: Store, *elements: bytes, token: tuple[int, str, str, int] = FIRST) -> int:
    return store.run(sink_ops.push("FOO", "query", token, elements))


def queued(db: redis.Redis) -> list[bytes]:
    return cast("list[bytes]", db.lrange(keys.queue("FOO"), 0, -1))


def test_a_chunk_that_is_published_twice_is_there_once(each: Store, each_db: redis.Redis) -> None:
    assert (push(each, b"a", b"b"), push(each, b"a", b"b")) == (1, 0)
    assert queued(each_db) == [b"a", b"b"]
    assert each_db.hgetall(FENCE) == {b"0/0/0": b"one"}
    assert 0 < each_db.ttl(FENCE) <= 60


def test_other_rows_under_the_same_token_are_not_published(
    each: Store, each_db: redis.Redis
) -> None:
    push(each, b"a")
    assert push(each, b"b", token=(0, "0/0/0", "two", 60)) == -1
    assert queued(each_db) == [b"a"]


def test_nothing_is_published_for_a_batch_below_the_floor(
    each: Store, each_db: redis.Redis
) -> None:
    each_db.hset(FENCE, "floor", 10)
    assert push(each, b"a", token=(9, "9/0/0", "one", 60)) == -2
    assert push(each, b"b", token=(10, "10/0/0", "one", 60)) == 1
    assert queued(each_db) == [b"b"]


def test_a_large_chunk_keeps_its_order(each: Store, each_db: redis.Redis) -> None:
    elements = [b"%d" % n for n in range(2500)]
    push(each, *elements)
    assert queued(each_db) == elements


@pytest.mark.parametrize("key", [keys.queue("FOO"), FENCE])
def test_a_key_of_another_type_refuses_the_whole_chunk(
    each: Store, each_db: redis.Redis, key: str
) -> None:
    each_db.set(key, "no such thing")
    with pytest.raises(WrongType):
        push(each, b"a")
    assert each_db.keys() == [key.encode()]


def test_a_call_is_repeated_after_a_lost_reply() -> None:
    assert sink_ops.push("FOO", "query", FIRST, [b"a"]).repeatable


def test_a_chunk_is_recorded_as_often_as_it_is_published(
    each: Store, each_db: redis.Redis, each_server: Server
) -> None:
    elements = [*(wire.encode(f"x{n}", "d", b"%d" % n) for n in range(1200)), b"junk"]
    call = sink_ops.push("FOO", "query", FIRST, elements, RECORDED)
    assert [each.run(call), each.run(call)] == [1, 0]
    found = records(each_server.url, "gomq", "FOO")
    expected = [*((f"x{n}", b"%d" % n) for n in range(1200)), ("", b"junk")]
    assert [(each.id, each.body) for each in found] == expected
    assert {each.event for each in found} == {"sent"}
    other = (0, "0/0/1", "two", 60)
    with pytest.raises(JournalFull):
        each.run(sink_ops.push("FOO", "query", other, elements, RECORDED))
    assert queued(each_db) == elements
    assert each_db.hgetall(FENCE) == {b"0/0/0": b"one"}


@pytest.mark.parametrize("key", [JOURNAL.journal, JOURNAL.state, keys.queue("FOO")])
def test_a_key_of_another_type_keeps_the_chunk_out_of_both(
    each: Store, each_db: redis.Redis, key: str
) -> None:
    each_db.set(key, "no such thing")
    with pytest.raises(WrongType):
        each.run(sink_ops.push("FOO", "query", FIRST, [b"a"], JournalPolicy("gomq", ("*",))))
    assert each_db.keys() == [key.encode()]
