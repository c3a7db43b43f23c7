"""RSMQ messages in each state, as lists show them."""

from __future__ import annotations

import pytest
import redis

from tambomq.console.messages.pages import list_messages
from tambomq.console.model import QueueRef
from tambomq.errors import InvalidFormat, QueueNotFound
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import settle
from tambomq.store.aio import AsyncStore
from tests.servers import Server

ORDERS = QueueRef("rsmq", "orders")


async def test_messages_are_visible_in_flight_or_delayed(aio: AsyncStore, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders")
    first = rsmq.send_message("orders", '{"a": 1}')
    late = rsmq.send_message("orders", "later", delay=60)
    received = rsmq.receive_message("orders", vt=90)
    assert received is not None
    second = rsmq.send_message("orders", "two")
    visible = await list_messages(aio, ORDERS, "visible")
    assert ([row.id for row in visible.rows], visible.total) == ([second], 1)
    (running,) = (await list_messages(aio, ORDERS, "in_flight")).rows
    assert (running.id, running.attempt) == (first, 1)
    assert (running.due_ms, running.preview) == (received.visible_at, '{"a": 1}')
    (delayed,) = (await list_messages(aio, ORDERS, "delayed")).rows
    assert (delayed.id, delayed.attempt, delayed.size_bytes) == (late, 0, 5)
    assert delayed.added_ms is not None
    assert delayed.due_ms is not None
    assert 59_000 < delayed.due_ms - delayed.added_ms < 61_000


async def test_dead_letters_have_their_reason_and_come_newest_first(
    aio: AsyncStore, rsmq: Rsmq
) -> None:
    rsmq.create_queue("orders")
    assert (await list_messages(aio, ORDERS, "dead")).total == 0
    sent = []
    for number in range(5):
        sent.append(rsmq.send_message("orders", b"%d" % number))
        message = rsmq.receive_message("orders")
        assert message is not None
        await aio.run(settle.bury(Keys(), "orders", message, "orders-dead", f"why {number}"))
    first = await list_messages(aio, ORDERS, "dead", limit=2)
    rest = await list_messages(aio, ORDERS, "dead", limit=5, cursor=first.next)
    found = [*first.rows, *rest.rows]
    assert {row.id for row in found} == set(sent)
    assert len(found) == 5
    assert {row.error for row in found} == {f"why {number}" for number in range(5)}
    died = [row.died_ms or 0 for row in found]
    assert died == sorted(died, reverse=True)
    assert (first.total, rest.next) == (5, None)


async def test_what_was_deleted_is_done_if_there_is_a_journal(
    aio: AsyncStore, server: Server
) -> None:
    with Rsmq(server.url, journal=("orders",)) as client:
        client.create_queue("orders")
        id = client.send_message("orders", "one")
        assert client.delete_message("orders", id)
    page = await list_messages(aio, ORDERS, "done")
    assert [row.id for row in page.rows] == [id]
    assert page.rows[0].ended_ms is not None


async def test_a_queue_that_is_not_there_is_not_found(aio: AsyncStore) -> None:
    with pytest.raises(QueueNotFound):
        await list_messages(aio, ORDERS, "visible")
    with pytest.raises(InvalidFormat):
        await list_messages(aio, QueueRef("rsmq", "not a name"), "visible")


async def test_another_namespace_is_another_queue(aio: AsyncStore, server: Server) -> None:
    with Rsmq(server.url, ns="shop") as client:
        client.create_queue("orders")
        id = client.send_message("orders", "one")
    page = await list_messages(aio, ORDERS, "visible", rsmq_ns="shop")
    assert [row.id for row in page.rows] == [id]


async def test_damaged_messages_are_shown_for_what_they_are(
    aio: AsyncStore, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("orders")
    db.zadd("rsmq:orders", {b"\xff\xfe": 5, b"no-body": 6})
    db.hset("rsmq:orders:Q", mapping={b"\xff\xfe": b"\x00\x01", b"\xff\xfe:rc": "x"})
    rows = (await list_messages(aio, ORDERS, "visible")).rows
    assert [(row.id, row.attempt) for row in rows] == [("\\xff\\xfe", 0), ("no-body", 0)]
    assert rows[1].preview == "(no body)"
