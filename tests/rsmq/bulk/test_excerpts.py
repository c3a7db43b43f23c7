"""Excerpts of RSMQ messages, on every kind of server."""

from __future__ import annotations

import pytest
import redis

from tambomq.errors import QueueNotFound
from tambomq.rsmq import Rsmq
from tambomq.rsmq.bulk import excerpts
from tambomq.rsmq.keys import Keys
from tambomq.store.sync import Store
from tests.servers import Server

KEYS = Keys()


def test_messages_are_read_by_score_both_ways(each_server: Server, each: Store) -> None:
    with Rsmq(each_server.url) as rsmq:
        rsmq.create_queue("q")
        sent = rsmq.send_messages("q", [b"a" * 5000, b"b", b"c"])
        message = rsmq.receive_message("q", vt=45)
    assert message is not None
    found = each.run(excerpts.page(KEYS, "q", "-inf", "+inf", 0))
    assert {each.id for each in found} == set(sent)
    last = found[-1]
    assert (last.id, last.rc, last.visible_at_ms) == (message.id, 1, message.visible_at)
    assert (last.hidden_s, last.fr_ms) == (45.0, message.fr)
    assert last.received_ms is not None
    assert abs(last.received_ms + 45_000 - message.visible_at) < 2
    newest = each.run(excerpts.page(KEYS, "q", "-inf", "+inf", 0, 1, newest_first=True))
    assert [each.id for each in newest] == [message.id]
    assert max(len(each.head) for each in found) == 2048


def test_one_message_has_its_rank(each_server: Server, each: Store) -> None:
    with Rsmq(each_server.url) as rsmq:
        rsmq.create_queue("q")
        first, second = rsmq.send_messages("q", [b"a" * 5000, b"b"])
    ranks = {
        id: found.rank
        for id in (first, second)
        if (found := each.run(excerpts.detail(KEYS, "q", id, 100))) is not None
    }
    assert sorted(ranks.values(), key=str) == [0, 1]
    found = each.run(excerpts.detail(KEYS, "q", first, 100))
    assert found is not None
    assert (len(found.head), found.size) == (100, 5000)
    assert each.run(excerpts.detail(KEYS, "q", "0" * 32, 100)) is None


def test_bodies_beyond_the_bound_are_known_by_their_size(
    each_server: Server, each: Store, each_db: redis.Redis
) -> None:
    with Rsmq(each_server.url) as rsmq:
        rsmq.create_queue("q", maxsize=-1)
        rsmq.send_message("q", b"x" * (2 << 20))
    (found,) = each.run(excerpts.page(KEYS, "q", "-inf", "+inf", 0))
    assert (found.head, found.size) == (b"", 2 << 20)
    each_db.hdel("rsmq:q:Q", found.id)
    (damaged,) = each.run(excerpts.page(KEYS, "q", "-inf", "+inf", 0))
    assert damaged.size == -1


def test_a_queue_that_is_not_there_is_not_found(each: Store) -> None:
    with pytest.raises(QueueNotFound):
        each.run(excerpts.page(KEYS, "q", "-inf", "+inf", 0))
    with pytest.raises(QueueNotFound):
        each.run(excerpts.detail(KEYS, "q", "0" * 32, 1))
