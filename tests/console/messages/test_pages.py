"""Pages of messages: searches that stop, and queues that change while they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import redis

from tambomq.chasqui import Queue
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import encode_envelope, encode_member
from tambomq.console.messages import pages
from tambomq.console.messages.cursor import encode_cursor
from tambomq.console.messages.model import MessagePage, MessageState
from tambomq.console.messages.pages import list_messages
from tambomq.console.model import QueueRef
from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.rsmq import Rsmq
from tambomq.store.aio import AsyncStore
from tests.servers import Server

ORDERS = QueueRef("rsmq", "orders")


async def all_pages(
    aio: AsyncStore,
    ref: QueueRef,
    state: MessageState,
    between: Callable[[int], Any] = lambda _: None,
    **options: Any,
) -> list[MessagePage]:
    """Return all pages; *between* is called with the number of each that was read."""
    found = [await list_messages(aio, ref, state, **options)]
    while found[-1].next is not None:
        between(len(found))
        found.append(await list_messages(aio, ref, state, cursor=found[-1].next, **options))
        assert len(found) < 200
    return found


def ids(found: list[MessagePage]) -> list[str]:
    return [row.id for page in found for row in page.rows]


def envelope(id: str, data: Any = None, attempt: int = 0) -> bytes:
    return encode_envelope(Envelope(id, msgspec.msgpack.encode(data), 1_700_000_000_000, attempt))


@pytest.mark.parametrize("limit", [1, 3, 7, 10, 50])
async def test_pages_of_waiting_jobs_have_each_once_in_their_order(
    aio: AsyncStore, payments: QueueRef, queue: Queue, limit: int
) -> None:
    added = [(await queue.add("n", number)).id for number in range(10)]
    found = await all_pages(aio, payments, "visible", limit=limit)
    assert ids(found) == added
    assert {page.total for page in found} == {10}
    assert len(found) == -(-10 // limit), "the last page is known to be the last"


async def test_jobs_that_end_while_pages_are_read_shift_nothing(
    aio: AsyncStore, payments: QueueRef, queue: Queue, db: redis.Redis
) -> None:
    added = [(await queue.add("n", number)).id for number in range(12)]
    stream = Keys("payments").stream
    entries: Any = db.xrange(stream)

    def end_some(page: int) -> None:
        db.xdel(stream, entries[page - 1][0], entries[-page][0])

    found = ids(await all_pages(aio, payments, "visible", end_some, limit=4))
    assert found == [id for id in added if id in found]
    assert set(found) >= set(added[:10])


async def test_delayed_jobs_of_one_time_are_paged_while_some_of_them_leave(
    aio: AsyncStore, payments: QueueRef, db: redis.Redis
) -> None:
    delayed = Keys("payments").delayed
    members = sorted(encode_member("n", envelope(f"job-{n:03d}"), "page") for n in range(40))
    db.zadd(delayed, dict.fromkeys(members, 2000000000000))
    wanted = [f"job-{n:03d}" for n in range(40)]
    assert ids(await all_pages(aio, payments, "delayed", limit=7)) == wanted

    def promote(page: int) -> None:
        db.zrem(delayed, *members[(page - 1) * 3 : page * 3])

    found = ids(await all_pages(aio, payments, "delayed", promote, limit=7))
    assert found == wanted, "each was there when its page was read, and none comes twice"


async def test_paging_continues_after_the_last_message_seen_has_left(
    aio: AsyncStore, payments: QueueRef, db: redis.Redis
) -> None:
    delayed = Keys("payments").delayed
    members = sorted(encode_member("n", envelope(f"job-{n}"), "page") for n in range(6))
    db.zadd(delayed, dict.fromkeys(members, 2000000000000))
    first = await list_messages(aio, payments, "delayed", limit=3)
    db.zrem(delayed, *members[1:3])
    second = await list_messages(aio, payments, "delayed", limit=3, cursor=first.next)
    assert ids([second]) == ["job-3", "job-4", "job-5"]


async def test_visible_messages_are_paged_while_consumers_receive(
    aio: AsyncStore, rsmq: Rsmq
) -> None:
    rsmq.create_queue("orders")
    sent = rsmq.send_messages("orders", [b"%d" % n for n in range(20)])

    def receive(_: int) -> None:
        # Hidden for 5 ms: they are visible again before the last page is read.
        rsmq.receive_messages("orders", 2, vt=0.005)

    found = ids(await all_pages(aio, ORDERS, "visible", receive, limit=5))
    assert len(found) == len(set(found)), "what becomes visible again is not seen twice"
    assert set(found) <= set(sent)
    assert len(found) >= 14


async def test_a_search_says_that_it_stopped_and_goes_on(
    aio: AsyncStore, payments: QueueRef, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_LOOKED_AT", 1000)
    await queue.add_bulk([{"name": "n", "data": n} for n in range(2500)])
    last = await queue.add("needle", {"order": "ord_918273"})
    found = await all_pages(aio, payments, "visible", find="ORD_918273")
    assert ids(found) == [last.id]
    assert [page.cut_off for page in found] == [True, True, False]
    assert [page.looked_at for page in found] == [1000, 1000, 501]


async def test_a_search_stops_after_its_time(
    aio: AsyncStore, payments: QueueRef, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_SECONDS", -1.0)
    await queue.add_bulk([{"name": "n", "data": n} for n in range(600)])
    page = await list_messages(aio, payments, "visible", find="nothing")
    assert (page.rows, page.cut_off, page.looked_at) == ([], True, 500)
    assert page.next is not None


async def test_searches_match_names_errors_and_bodies(
    aio: AsyncStore, payments: QueueRef, queue: Queue, db: redis.Redis
) -> None:
    await queue.add("charge", {"to": "ada"})
    await queue.add("refund", {"to": "bob"})
    assert [r.name for r in (await list_messages(aio, payments, "visible", find="ADA")).rows] == [
        "charge"
    ]
    page = await list_messages(aio, payments, "visible", name="refund")
    assert [row.name for row in page.rows] == ["refund"]
    fields: dict[Any, Any] = {
        "d": envelope("dead-1", 1, 2),
        "n": "charge",
        "reason": "retries_exhausted",
    }
    db.xadd(Keys("payments").dlq, {**fields, "error_type": "KeyError", "detail": "'to'"})
    dead = await list_messages(aio, payments, "dead", find="keyerror since:1h")
    assert [(row.id, row.error, row.attempt) for row in dead.rows] == [
        ("dead-1", "retries_exhausted: KeyError: 'to'", 3)
    ]
    assert not (await list_messages(aio, payments, "dead", find="until:1h")).rows


async def test_large_bodies_are_listed_by_their_ends(
    aio: AsyncStore, payments: QueueRef, queue: Queue, rsmq: Rsmq
) -> None:
    for number in range(3):
        await queue.add("big", {"n": number, "x": "y" * (10 << 20)})
    page = await list_messages(aio, payments, "visible")
    assert [(row.name, row.attempt) for row in page.rows] == [("big", 0)] * 3
    assert all(row.size_bytes and row.size_bytes > 10 << 20 for row in page.rows)
    assert all("yyyy" in row.preview and len(row.preview) <= 160 for row in page.rows)
    await queue.add("later", {"x": "y" * (10 << 20)}, delay_ms=60_000, job_id="late")
    (late,) = (await list_messages(aio, payments, "delayed")).rows
    assert (late.id, late.name) == ("late", "later")
    rsmq.create_queue("orders", maxsize=-1)
    rsmq.send_message("orders", b"z" * (10 << 20))
    (sent,) = (await list_messages(aio, ORDERS, "visible")).rows
    assert (sent.size_bytes, sent.preview) == (10 << 20, "(10 MiB)")


@pytest.mark.parametrize("limit", [0, 501, -1])
async def test_a_page_limit_is_from_1_to_500(
    aio: AsyncStore, payments: QueueRef, limit: int
) -> None:
    with pytest.raises(InvalidValue, match="from 1 to 500"):
        await list_messages(aio, payments, "visible", limit=limit)


@pytest.mark.parametrize("state", ["visible", "in_flight", "delayed", "dead", "done"])
@pytest.mark.parametrize("queue_name", ["chasqui:payments", "rsmq:orders", "gomq:k", "kqueue:k"])
async def test_a_cursor_of_another_list_is_refused(
    aio: AsyncStore, queue_name: str, state: MessageState, server: Server
) -> None:
    with Rsmq(server.url) as client:
        client.create_queue("orders")
    other = encode_cursor("rsmq:other visible", ("1-0",))
    with pytest.raises(InvalidFormat):
        await list_messages(aio, QueueRef.parse(queue_name), state, cursor=other)


@pytest.mark.parametrize(
    ("queue_name", "state"),
    [
        ("chasqui:q", "visible"),
        ("chasqui:q", "delayed"),
        ("rsmq:orders", "visible"),
        ("gomq:k", "visible"),
        ("gomq:k", "in_flight"),
        ("kqueue:k", "done"),
    ],
)
async def test_a_position_that_no_list_wrote_is_refused(
    aio: AsyncStore, queue_name: str, state: MessageState
) -> None:
    forged = encode_cursor(f"{queue_name} {state}", ("-", "x; FLUSHALL"))
    with pytest.raises(InvalidFormat):
        await list_messages(aio, QueueRef.parse(queue_name), state, cursor=forged)
