"""Chunks are sent once and whole, and lie in the server as our client would have sent them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest
import redis

from tambomq.errors import JournalFull, MessageTooLong, QueueCorrupt, QueueNotFound, WrongType
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalBounds
from tambomq.rsmq import Rsmq
from tambomq.rsmq.bulk import sink as sink_ops
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops.journal import journal_policy
from tambomq.store.sync import Store
from tests.journal.looking import records
from tests.rsmq.stored import at_rest
from tests.servers import Server

KEYS = Keys()
FENCE = KEYS.fence("q", "query")
JOURNAL = JournalKeys("rsmq", "q")
FIRST = (0, "0/0/0", "one", 60)
ID = re.compile(rb"[0-9a-z]{10}[A-Za-z0-9]{22}")


@pytest.fixture
def each(each_server: Server) -> Iterator[Store]:
    """A store on a server of each kind in turn, with the queue ``q``."""
    with Rsmq(each_server.url) as client:
        client.create_queue("q", delay=5, maxsize=1024)
    opened = Store(each_server.url)
    yield opened
    opened.close()


def send(store: Store, *bodies: bytes, token: Any = FIRST, delays: Any = ()) -> int:
    return store.run(sink_ops.send(KEYS, "q", "query", token, bodies, delays))


def test_a_chunk_that_is_sent_twice_is_there_once(each: Store, each_server: Server) -> None:
    assert (send(each, b"a", b"b"), send(each, b"a", b"b")) == (1, 0)
    with Rsmq(each_server.url) as client:
        assert [message.body for message in client.peek_messages("q")] == [b"a", b"b"]
        assert client.get_queue_attributes("q").totalsent == 2


def test_other_rows_under_the_same_token_are_not_sent(each: Store, each_db: redis.Redis) -> None:
    send(each, b"a")
    before = at_rest(each_db)
    assert send(each, b"b", token=(0, "0/0/0", "two", 60)) == -1
    assert at_rest(each_db) == before


def test_nothing_is_sent_for_a_batch_below_the_floor(each: Store, each_db: redis.Redis) -> None:
    each_db.hset(FENCE, "floor", 10)
    assert send(each, b"a", token=(9, "9/0/0", "one", 60)) == -2
    assert send(each, b"a", token=(10, "10/0/0", "one", 60)) == 1
    assert each_db.zcard(KEYS.messages("q")) == 1


def test_a_sink_stores_messages_in_the_same_form_as_a_client(
    each: Store, each_db: redis.Redis
) -> None:
    now = each_db.time()[0] * 1000
    send(each, b"a", b"b", b"c", delays=(None, 0, 2.5))
    rows = cast("Any", each_db.zrange(KEYS.messages("q"), 0, -1, withscores=True))
    fields = cast("dict[bytes, bytes]", each_db.hgetall(KEYS.data("q")))
    assert all(ID.fullmatch(id) for id, _ in rows)
    assert [fields[id] for id, _ in rows] == [b"b", b"c", b"a"]
    first = rows[0][1]
    assert now <= first < now + 60_000
    assert [score - first for _, score in rows] == [0, 2500, 5000]
    assert fields[b"totalsent"] == b"3"
    assert len(fields) == 5 + 1 + 3


def test_the_messages_of_a_chunk_are_received_in_their_order(
    each: Store, each_server: Server
) -> None:
    bodies = [b"%d" % n for n in range(1000)]
    send(each, *bodies, delays=[0] * 1000)
    with Rsmq(each_server.url) as client:
        assert [each.body for each in client.receive_messages("q", 1000)] == bodies


def test_each_message_of_a_chunk_has_a_microsecond_of_its_own(
    each: Store, each_db: redis.Redis
) -> None:
    began = each_db.time()
    send(each, *[b"x"] * 3000)
    ids = sorted(cast("list[bytes]", each_db.zrange(KEYS.messages("q"), 0, -1)))
    micros = [int(id[:10], 36) for id in ids]
    assert micros == list(range(micros[0], micros[0] + 3000))
    assert 0 <= micros[0] - (began[0] * 1_000_000 + began[1]) < 60_000_000


def test_one_body_that_is_too_long_refuses_the_whole_chunk(
    each: Store, each_db: redis.Redis
) -> None:
    before = at_rest(each_db)
    with pytest.raises(MessageTooLong, match="1025 bytes exceeds the 1024"):
        send(each, b"a", b"x" * 1025)
    assert at_rest(each_db) == before


def test_a_send_to_a_missing_or_damaged_queue_stores_nothing(
    each: Store, each_db: redis.Redis
) -> None:
    each_db.hset(KEYS.data("q"), "maxsize", "much")
    with pytest.raises(QueueCorrupt, match="much"):
        send(each, b"a")
    each_db.delete(KEYS.data("q"))
    with pytest.raises(QueueNotFound):
        send(each, b"a")
    assert each_db.keys() == [KEYS.queues.encode()]


@pytest.mark.parametrize("key", [KEYS.messages("q"), FENCE])
def test_a_key_of_another_type_refuses_the_whole_chunk(
    each: Store, each_db: redis.Redis, key: str
) -> None:
    each_db.set(key, "no such thing")
    before = at_rest(each_db)
    with pytest.raises(WrongType):
        send(each, b"a")
    assert at_rest(each_db) == before


def test_a_fence_has_the_given_ttl(each: Store, each_db: redis.Redis) -> None:
    send(each, b"a")
    assert each_db.hgetall(FENCE) == {b"0/0/0": b"one"}
    assert 0 < each_db.ttl(FENCE) <= 60


def test_queues_say_how_long_a_body_may_be(each: Store, each_server: Server) -> None:
    with Rsmq(each_server.url) as client:
        client.create_queue("any", maxsize=-1)
    asked = [sink_ops.longest(KEYS, queue) for queue in ("q", "any", "none")]
    assert each.run_all(asked) == [1024, -1, None]


def test_a_call_is_repeated_after_a_lost_reply() -> None:
    assert sink_ops.send(KEYS, "q", "query", FIRST, [b"a"]).repeatable


# ── journals ─────────────────────────────────────────────────────────────────


def test_a_chunk_is_recorded_as_often_as_it_is_sent(
    each: Store, each_db: redis.Redis, each_server: Server
) -> None:
    journal = journal_policy("rsmq", ("q",), JournalBounds(max_entries=3))
    call = partial(sink_ops.send, KEYS, "q", "query", journal=journal)
    for reply in (1, 0):
        assert each.run(call(FIRST, [b"a", b"b"], [None, 0])) == reply
    before = at_rest(each_db)
    with pytest.raises(JournalFull):
        each.run(call((0, "0/0/1", "two", 60), [b"c", b"d"]))
    with pytest.raises(MessageTooLong):
        each.run(call((0, "0/0/1", "two", 60), [b"x" * 1025]))
    recorded_entries = records(each_server.url, "rsmq", "q")
    delayed, immediate = recorded_entries
    # Redis 7.0 lets the clock go on within a script, so the journal may see less of the delay.
    assert (delayed.body, 4000 < (delayed.delay_ms or 0) <= 5000) == (b"a", True)
    assert (immediate.body, immediate.delay_ms) == (b"b", None)
    ids: Any = each_db.zrange(KEYS.messages("q"), 0, -1)
    assert {each.id.encode() for each in recorded_entries} == set(ids)
    each_db.hdel(JOURNAL.state, "refused")
    assert at_rest(each_db) == before


@pytest.mark.parametrize("key", [JOURNAL.journal, JOURNAL.state, KEYS.messages("q"), FENCE])
def test_a_key_of_another_type_keeps_the_chunk_out_of_both(
    each: Store, each_db: redis.Redis, key: str
) -> None:
    each_db.set(key, "no such thing")
    before = at_rest(each_db)
    journal = journal_policy("rsmq", ("q",), JournalBounds())
    with pytest.raises(WrongType):
        each.run(sink_ops.send(KEYS, "q", "query", FIRST, [b"a"], journal=journal))
    assert at_rest(each_db) == before
