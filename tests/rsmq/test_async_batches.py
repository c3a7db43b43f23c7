"""Operations that tasks of one asyncio client make at the same time: each as if it were alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from tambomq.errors import InvalidFormat, InvalidValue, MessageTooLong, QueueNotFound
from tambomq.rsmq import AsyncRsmq, Message
from tests.servers import Server, eventually_async


@pytest.fixture
async def rsmq(server: Server) -> AsyncIterator[AsyncRsmq]:
    async with AsyncRsmq(server.url) as client:
        await client.create_queue("q", maxsize=1024)
        yield client


def scripts_run(db: redis.Redis) -> int:
    stats = db.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


async def received(rsmq: AsyncRsmq, count: int, **options: float) -> list[Message | None]:
    return await asyncio.gather(*(rsmq.receive_message("q", **options) for _ in range(count)))


async def test_each_task_receives_a_message_of_its_own(rsmq: AsyncRsmq) -> None:
    ids = await rsmq.send_messages("q", map(str, range(40)))
    messages = await received(rsmq, 40)
    assert [message and message.id for message in messages] == ids
    assert {message.rc for message in messages if message} == {1}


async def test_tasks_without_a_message_receive_none(rsmq: AsyncRsmq) -> None:
    ids = await rsmq.send_messages("q", "abc")
    messages = await received(rsmq, 20)
    assert [message.id for message in messages if message] == ids
    assert messages.count(None) == 17
    assert (await rsmq.get_queue_attributes("q")).totalrecv == 3


async def test_messages_behind_damaged_entries_reach_all_tasks(
    rsmq: AsyncRsmq, db: redis.Redis
) -> None:
    ids = await rsmq.send_messages("q", map(str, range(20)))
    for damaged in ids[::2]:
        db.hdel("rsmq:q:Q", damaged)
    messages = await received(rsmq, 10)
    assert sorted(message.id for message in messages if message) == ids[1::2]


async def test_a_message_that_stays_visible_is_received_by_all_tasks(rsmq: AsyncRsmq) -> None:
    await rsmq.send_message("q", "again")
    messages = await received(rsmq, 10, vt=0)
    assert sorted(message.rc for message in messages if message) == list(range(1, 11))


async def test_tasks_with_their_own_timeouts_get_them(rsmq: AsyncRsmq) -> None:
    await rsmq.send_messages("q", map(str, range(12)))
    messages = await asyncio.gather(
        *(rsmq.receive_message("q", vt=vt) for vt in (10, 1000, 100_000) * 4)
    )
    hidden_until = [message.visible_at for message in messages if message]
    assert len(hidden_until) == 12
    for short, middle, long in zip(*(iter(hidden_until),) * 3, strict=True):
        assert short < middle - 900_000 < long - 90_000_000


async def test_a_receipt_of_a_batch_is_void_once_the_message_is_received_again(
    rsmq: AsyncRsmq,
) -> None:
    await rsmq.send_messages("q", map(str, range(10)))
    first = [message for message in await received(rsmq, 10, vt=0) if message]
    second = [message for message in await received(rsmq, 10) if message]
    assert {message.id for message in first} <= {message.id for message in second}

    async def delete(message: Message) -> bool:
        return await rsmq.delete_message("q", message.id, receipt=message.receipt)

    assert not any(await asyncio.gather(*map(delete, first)))
    assert all(await asyncio.gather(*map(delete, second)))


async def test_messages_of_cancelled_receivers_go_to_others(
    rsmq: AsyncRsmq, db: redis.Redis
) -> None:
    ids = await rsmq.send_messages("q", map(str, range(8)))
    db.client_pause(30_000, all=False)
    tasks = [asyncio.ensure_future(rsmq.receive_message("q")) for _ in range(16)]
    # The batches leave within a few turns of the loop; no reply comes.
    for _ in range(10):
        await asyncio.sleep(0)
    for task in tasks[1::2]:
        task.cancel()
    db.client_unpause()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    taken = [each.id for each in outcomes if isinstance(each, Message)]

    async def rest() -> bool:
        taken.extend(message.id for message in await rsmq.receive_messages("q", 10))
        return len(taken) >= 8

    await eventually_async(rest)
    assert sorted(taken) == ids


async def test_each_deletion_has_its_own_result(rsmq: AsyncRsmq) -> None:
    ids = await rsmq.send_messages("q", map(str, range(6)))
    wanted = [ids[0], ids[1], "x" * 32, ids[1], ids[2], ids[3]]
    flags = await asyncio.gather(*(rsmq.delete_message("q", id) for id in wanted))
    assert flags == [True, True, False, False, True, True]
    assert [message.id for message in await rsmq.peek_messages("q")] == ids[4:]


async def test_messages_sent_together_keep_their_order(rsmq: AsyncRsmq) -> None:
    bodies = [str(n) for n in range(50)]
    ids = await asyncio.gather(*(rsmq.send_message("q", body) for body in bodies))
    assert len(set(ids)) == 50
    messages = await rsmq.receive_messages("q", 50)
    assert [(message.id, message.text) for message in messages] == list(
        zip(ids, bodies, strict=True)
    )


async def test_a_body_that_is_too_long_fails_alone(rsmq: AsyncRsmq) -> None:
    bodies = ["x" * (2000 if n % 5 == 4 else 10) for n in range(20)]
    outcomes = await asyncio.gather(
        *(rsmq.send_message("q", body) for body in bodies), return_exceptions=True
    )
    failed = [outcome for outcome in outcomes if isinstance(outcome, MessageTooLong)]
    assert [isinstance(outcome, MessageTooLong) for outcome in outcomes] == [
        len(body) > 1024 for body in bodies
    ]
    assert all("2000" in str(error) for error in failed)
    stored = {message.id for message in await rsmq.peek_messages("q", 100)}
    assert stored == {outcome for outcome in outcomes if isinstance(outcome, str)}


async def test_large_bodies_sent_together_all_arrive(rsmq: AsyncRsmq) -> None:
    await rsmq.set_queue_attributes("q", maxsize=65536)
    bodies = [str(n) * 30_000 for n in range(10)]
    await asyncio.gather(*(rsmq.send_message("q", body) for body in bodies))
    assert sorted(message.text for message in await rsmq.receive_messages("q", 10)) == bodies


async def test_an_invalid_argument_fails_its_own_task(rsmq: AsyncRsmq) -> None:
    outcomes = await asyncio.gather(
        rsmq.send_message("q", "a"),
        rsmq.send_message("q", "b", delay=-1),
        rsmq.send_message("a queue", "c"),
        rsmq.send_message("q", "d"),
        rsmq.receive_message("q", vt=-1),
        rsmq.delete_message("q", "no id"),
        return_exceptions=True,
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [str, InvalidValue, InvalidFormat, str, InvalidValue, InvalidFormat]


async def test_a_missing_queue_fails_each_task_and_no_other(rsmq: AsyncRsmq) -> None:
    queues = ["q", "gone"] * 10
    outcomes = await asyncio.gather(
        *(rsmq.send_message(queue, "x") for queue in queues),
        *(rsmq.receive_message(queue) for queue in queues),
        *(rsmq.delete_message(queue, "x" * 32) for queue in queues),
        return_exceptions=True,
    )
    for queue, outcome in zip(queues * 3, outcomes, strict=True):
        assert isinstance(outcome, QueueNotFound) == (queue == "gone")
    errors = [outcome for outcome in outcomes if isinstance(outcome, QueueNotFound)]
    assert len({id(error) for error in errors}) == 30
    assert {error.queue for error in errors} == {"gone"}


async def test_each_message_of_a_batch_is_published(server: Server, db: redis.Redis) -> None:
    listener = db.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    listener.subscribe("rsmq:rt:q")
    listener.get_message(timeout=60)
    async with AsyncRsmq(server.url, realtime=True) as rsmq:
        await rsmq.create_queue("q")
        await asyncio.gather(*(rsmq.send_message("q", "x") for _ in range(12)))
    counts = list[bytes]()

    def all_heard() -> bool:
        if heard := listener.get_message():
            counts.append(heard["data"])
        return len(counts) == 12

    await eventually_async(all_heard)
    assert sorted(map(int, counts)) == list(range(1, 13))
    listener.close()


async def test_a_journal_records_what_tasks_do_together(server: Server, db: redis.Redis) -> None:
    async with AsyncRsmq(server.url, journal=("q",)) as rsmq:
        await rsmq.create_queue("q")
        ids = await asyncio.gather(*(rsmq.send_message("q", "x") for _ in range(6)))
        await received(rsmq, 6)
        await asyncio.gather(*(rsmq.delete_message("q", id) for id in ids))
    entries: Any = db.xrange("{tambo:rsmq:q}:journal")
    events = [fields[b"e"] for _, fields in entries]
    assert {event: events.count(event) for event in events} == {
        b"sent": 6,
        b"received": 6,
        b"deleted": 6,
    }


async def test_a_busy_client_runs_fewer_scripts_than_operations(
    rsmq: AsyncRsmq, db: redis.Redis
) -> None:
    before = scripts_run(db)
    ids = await asyncio.gather(*(rsmq.send_message("q", "x") for _ in range(64)))
    await received(rsmq, 64)
    await asyncio.gather(*(rsmq.delete_message("q", id) for id in ids))
    assert scripts_run(db) - before < 64
