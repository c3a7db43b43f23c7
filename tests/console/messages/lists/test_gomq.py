"""GOMQ messages: in the main queue, in dedicated queues, in batches that are not acknowledged."""

from __future__ import annotations

import redis

from tambomq.console.messages.pages import list_messages
from tambomq.console.model import QueueRef
from tambomq.gomq import keys, wire
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as ops
from tambomq.store.aio import AsyncStore

PRICES = QueueRef("gomq", "prices")


def element(number: int, payload: bytes = b"hello") -> bytes:
    return wire.encode(f"{number:020d}", "Tue Jul 18 10:15:04 UTC 2017", payload)


async def test_messages_wait_in_the_main_queue_then_for_each_peer(aio: AsyncStore) -> None:
    await aio.run(ops.push("prices", [element(1), element(2)]))
    page = await list_messages(aio, PRICES, "visible")
    assert [(row.id[-1], row.holder, row.preview) for row in page.rows] == [
        ("1", None, "hello"),
        ("2", None, "hello"),
    ]
    assert (page.total, page.next) == (2, None)
    for consumer in ("alice", "bob"):
        await aio.run(ops.subscribe("prices", consumer, f"{consumer}-1", Options()))
    await aio.run(ops.dispatch("prices", observed=True))
    await aio.run(ops.push("prices", [element(3)]))
    found, cursor = [], None
    while True:
        page = await list_messages(aio, PRICES, "visible", limit=2, cursor=cursor)
        found += [(row.id[-1], row.holder) for row in page.rows]
        cursor = page.next
        if cursor is None:
            break
    expected = [(n, f"{name}/{name}-1") for name in ("alice", "bob") for n in "12"]
    assert found == [("3", None), *expected]


async def test_a_batch_is_in_flight_until_it_is_acknowledged(aio: AsyncStore) -> None:
    await aio.run(ops.subscribe("prices", "alice", "p", Options()))
    await aio.run(ops.push("prices", [element(n) for n in range(5)]))
    await aio.run(ops.dispatch("prices", observed=True))
    await aio.run(ops.observe_kept("alice", "p", Options(), acked="", batch="b1", limit=3))
    first = await list_messages(aio, PRICES, "in_flight", limit=2)
    rest = await list_messages(aio, PRICES, "in_flight", limit=2, cursor=first.next)
    assert [row.id[-1] for row in (*first.rows, *rest.rows)] == ["0", "1", "2"]
    assert {row.holder for row in first.rows} == {"alice/p"}
    assert rest.next is None
    await aio.run(ops.observe_kept("alice", "p", Options(), acked="b1", batch="b2"))
    after = await list_messages(aio, PRICES, "in_flight", limit=2, cursor=first.next)
    assert after.rows == [], "another batch is not the rest of this one"


async def test_pages_go_on_where_they_were_when_the_head_is_taken(
    aio: AsyncStore, db: redis.Redis
) -> None:
    await aio.run(ops.push("prices", [element(n) for n in range(30)]))
    found, cursor = [], None
    while True:
        page = await list_messages(aio, PRICES, "visible", limit=7, cursor=cursor)
        found += [int(row.id) for row in page.rows]
        cursor = page.next
        if cursor is None:
            break
        db.lpop(keys.queue("prices"), 4)
    assert found == list(range(30))


async def test_a_list_that_lost_all_that_was_seen_begins_at_its_head(
    aio: AsyncStore, db: redis.Redis
) -> None:
    await aio.run(ops.push("prices", [element(n) for n in range(10)]))
    first = await list_messages(aio, PRICES, "visible", limit=3)
    db.lpop(keys.queue("prices"), 5)
    second = await list_messages(aio, PRICES, "visible", limit=50, cursor=first.next)
    assert [int(row.id) for row in second.rows] == [5, 6, 7, 8, 9]


async def test_elements_of_other_clients_are_shown(aio: AsyncStore, db: redis.Redis) -> None:
    db.rpush(keys.queue("prices"), b"<script>", element(1, b"x" * (1 << 20)))
    rows = (await list_messages(aio, PRICES, "visible")).rows
    assert (rows[0].id, rows[0].preview) == ("", "<script>")
    assert rows[0].error == "not a message of GOMQ"
    assert (rows[1].size_bytes, rows[1].preview[:4]) == (1 << 20, "xxxx")


async def test_states_that_gomq_does_not_have_are_empty_and_say_so(aio: AsyncStore) -> None:
    for state, note in (("delayed", "no delays"), ("dead", "no dead letters")):
        page = await list_messages(aio, PRICES, state)  # type: ignore[arg-type]
        assert (page.rows, page.total) == ([], 0)
        assert note in page.note
