"""Queues are paused, drained and purged; what was not counted stays."""

from __future__ import annotations

import pytest
import redis

from tambomq.chasqui import Queue
from tambomq.console.model import QueueRef
from tambomq.errors import ActionRefused, QueueNotFound
from tambomq.rsmq import AsyncRsmq
from tambomq.store.aio import AsyncStore
from tests.console.actions.acting import MAIL, ORDERS, actions_on
from tests.servers import Server

TICKS = QueueRef("gomq", "ticks")
HOUR_MS = 3_600_000


async def test_a_queue_is_paused_and_resumed(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    async with Queue("mail", redis_url=server.url) as queue:
        await queue.add("welcome", 1)
        assert (await actions.pause(MAIL)).text == "Paused chasqui:mail."
        assert await queue.is_paused()
        assert (await actions.resume(MAIL)).text == "Resumed chasqui:mail."
        assert (await actions.resume(MAIL)).text == "chasqui:mail was not paused."
        assert not await queue.is_paused()


async def test_a_mistyped_queue_is_not_paused(store: AsyncStore) -> None:
    with pytest.raises(QueueNotFound, match="chasqui:mial"):
        await actions_on(store).pause(QueueRef("chasqui", "mial"))


async def test_drain_removes_what_was_counted_and_no_delayed_job(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    async with Queue("mail", redis_url=server.url) as queue:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(5)])
        await queue.add("later", 1, delay_ms=HOUR_MS)
        counted = await actions.count_for(MAIL, "drain")
        assert (counted.count, counted.text) == (
            5,
            "5 waiting jobs would be removed from chasqui:mail.",
        )
        newest = await queue.add("n", "added after the count")
        assert (await actions.drain(MAIL, counted.count)).count == 5
        found = await queue.get_job(newest.id)
        assert found is not None
        assert found.state == "waiting"
        assert (await queue.get_job_counts()).delayed == 1


async def test_purge_removes_delayed_jobs_too(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    async with Queue("mail", redis_url=server.url) as queue:
        await queue.add("now", 1)
        await queue.add("later", 1, delay_ms=HOUR_MS)
        counted = await actions.count_for(MAIL, "purge")
        assert "1 waiting and 1 delayed jobs" in counted.text
        assert (await actions.purge(MAIL, counted.count)).count == 2
        counts = await queue.get_job_counts()
        assert (counts.waiting, counts.delayed) == (0, 0)


async def test_an_rsmq_queue_that_has_grown_is_not_purged(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    rsmq = AsyncRsmq(server.url)
    await rsmq.create_queue("orders")
    await rsmq.send_messages("orders", ["one", "two"])
    with pytest.raises(ActionRefused, match="has 2 messages now, not 1"):
        await actions.purge(ORDERS, 1)
    assert (await actions.purge(ORDERS, 2)).text == "Removed 2 messages from rsmq:orders."
    assert (await rsmq.get_queue_attributes("orders")).msgs == 0
    await rsmq.close()


async def test_the_oldest_undelivered_messages_of_a_gomq_key_are_removed(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    for n in range(3):
        await actions.send(TICKS, f"tick {n}")
    assert (await actions.count_for(TICKS, "purge")).count == 3
    assert (await actions.purge(TICKS, 2)).count == 2
    with redis.Redis.from_url(server.url) as admin:
        assert admin.llen("QUEUE_ticks") == 1


@pytest.mark.parametrize(
    ("queue", "verb"), [(ORDERS, "drain"), (TICKS, "drain"), (QueueRef("kqueue", "chat"), "purge")]
)
async def test_what_a_protocol_lacks_is_refused(
    queue: QueueRef, verb: str, store: AsyncStore
) -> None:
    with pytest.raises(ActionRefused, match=f"has no {verb}: it has"):
        await actions_on(store).count_for(queue, verb)
