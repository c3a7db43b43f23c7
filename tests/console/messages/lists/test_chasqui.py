"""ChasquiMQ jobs in each state, as lists show them, also when they are no jobs at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import redis

from tambomq.chasqui import Queue
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import GROUP, RETURNED, Keys
from tambomq.chasqui.wire.envelope import encode_envelope
from tambomq.console.messages.pages import list_messages
from tambomq.console.model import QueueRef
from tambomq.errors import WrongType
from tambomq.store.aio import AsyncStore
from tests.console.messages.conftest import HOSTILE

KEYS = Keys("payments")


async def test_jobs_that_workers_have_are_in_flight_and_those_given_back_wait(
    aio: AsyncStore, payments: QueueRef, queue: Queue, db: redis.Redis
) -> None:
    added = [(await queue.add("n", number)).id for number in range(4)]
    db.xgroup_create(KEYS.stream, GROUP, "0")
    db.xreadgroup(GROUP, "pay-1", {KEYS.stream: ">"}, count=2)
    entries: Any = db.xrange(KEYS.stream)
    db.xclaim(KEYS.stream, GROUP, RETURNED, 0, [entries[0][0]])
    waiting = await list_messages(aio, payments, "visible")
    running = await list_messages(aio, payments, "in_flight")
    assert ([row.id for row in waiting.rows], waiting.total) == ([added[0], *added[2:]], 3)
    assert [(row.id, row.holder, row.attempt) for row in running.rows] == [(added[1], "pay-1", 1)]
    assert running.total == 1


async def test_an_entry_that_was_trimmed_while_it_ran_is_not_listed(
    aio: AsyncStore, payments: QueueRef, queue: Queue, db: redis.Redis
) -> None:
    await queue.add("n", 1)
    db.xgroup_create(KEYS.stream, GROUP, "0")
    db.xreadgroup(GROUP, "pay-1", {KEYS.stream: ">"})
    db.xtrim(KEYS.stream, maxlen=0)
    page = await list_messages(aio, payments, "in_flight")
    assert (page.rows, page.looked_at, page.next) == ([], 1, None)


async def test_delayed_jobs_come_in_the_order_they_are_due(
    aio: AsyncStore, payments: QueueRef, queue: Queue
) -> None:
    late = await queue.add("late", 1, delay_ms=90_000, attempts=5)
    soon = await queue.add("soon", 2, delay_ms=30_000)
    page = await list_messages(aio, payments, "delayed")
    assert [(row.id, row.name, row.max_attempts) for row in page.rows] == [
        (soon.id, "soon", None),
        (late.id, "late", 5),
    ]
    first, second = (row.due_ms for row in page.rows)
    assert first is not None
    assert second is not None
    assert first < second


async def test_dead_letters_are_newest_first(
    aio: AsyncStore, payments: QueueRef, db: redis.Redis
) -> None:
    for number in (1, 2):
        stored = encode_envelope(Envelope(f"job-{number}", b"\xc0", 5))
        db.xadd(KEYS.dlq, {"d": stored, "reason": "oversize_payload"}, id=f"{number}000-0")
    page = await list_messages(aio, payments, "dead")
    assert [(row.id, row.died_ms, row.error, row.attempt) for row in page.rows] == [
        ("job-2", 2000, "oversize_payload", 0),
        ("job-1", 1000, "oversize_payload", 0),
    ]


async def test_what_ended_of_late_is_taken_from_the_events(
    aio: AsyncStore, payments: QueueRef, db: redis.Redis
) -> None:
    for number, (event, id) in enumerate(
        [("active", "a"), ("completed", "a"), ("dlq", "b"), ("cancelled", "c"), ("drained", "")]
    ):
        db.xadd(KEYS.events, {"e": event, "id": id, "n": "x", "attempt": "2"}, id=f"{number + 1}-0")
    page = await list_messages(aio, payments, "done")
    assert [(row.id, row.name, row.ended_ms, row.error) for row in page.rows] == [
        ("c", "x", 4, "cancelled"),
        ("a", "x", 2, None),
    ]


async def test_entries_that_are_no_jobs_are_listed_by_their_entry(
    aio: AsyncStore, payments: QueueRef, db: redis.Redis
) -> None:
    db.xadd(KEYS.stream, {"d": b"\xff\x00garbage"}, id="5-0")
    db.xadd(KEYS.stream, {"other": "field"}, id="6-0")
    db.zadd(KEYS.delayed, {b"\xff": 7})
    rows = (await list_messages(aio, payments, "visible")).rows
    assert [(row.id, row.attempt) for row in rows] == [("5-0", None), ("6-0", None)]
    assert "garbage" in rows[0].preview
    (member,) = (await list_messages(aio, payments, "delayed")).rows
    assert (member.id, member.due_ms) == ("ff", 7)


async def test_hostile_names_and_bodies_are_only_text(
    aio: AsyncStore, queue: Queue, db: redis.Redis
) -> None:
    ref = QueueRef("chasqui", HOSTILE)
    body = msgspec.msgpack.encode({"html": HOSTILE})
    stored = encode_envelope(Envelope(HOSTILE, body, 1))
    db.xadd(Keys(HOSTILE).stream, {"d": stored, "n": HOSTILE.encode()})
    (row,) = (await list_messages(aio, ref, "visible", find="<script>")).rows
    assert (row.id, row.name, row.queue) == (HOSTILE, HOSTILE, f"chasqui:{HOSTILE}")
    assert row.preview.isprintable()


async def test_a_key_of_another_type_is_an_error_of_this_queue_alone(
    aio: AsyncStore, payments: QueueRef, db: redis.Redis
) -> None:
    db.set(KEYS.dlq, "not a stream")
    with pytest.raises(WrongType):
        await list_messages(aio, payments, "dead")
    assert (await list_messages(aio, payments, "visible")).rows == []
