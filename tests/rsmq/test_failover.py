"""RSMQ clients and workers that follow to a server which lacks the last moments."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from tambomq.rsmq import AsyncRsmq, Message, Rsmq, RsmqWorker
from tests.rsmq.working import working
from tests.servers import eventually, eventually_async
from tests.servers.replaced import ReplacedServer

WITHIN_S = 20


@pytest.fixture
def servers() -> Iterator[ReplacedServer]:
    with ReplacedServer() as servers:
        yield servers


def test_a_receipt_that_the_new_primary_does_not_know_is_refused(servers: ReplacedServer) -> None:
    with Rsmq(servers.url) as rsmq:
        rsmq.create_queue("q")
        rsmq.send_message("q", "a")
        servers.copy()
        first = rsmq.receive_message("q")
        assert first is not None
        servers.replace()
        again = eventually(lambda: rsmq.receive_message("q"), within_s=WITHIN_S)
        assert again is not None
        assert (again.id, again.rc) == (first.id, 1)
        assert not rsmq.delete_message("q", first.id, receipt=first.receipt)
        assert not rsmq.change_message_visibility("q", first.id, 0, receipt=first.receipt)
        assert rsmq.delete_message("q", again.id, receipt=again.receipt)


async def test_a_message_that_is_handled_during_a_failover_is_settled_by_its_new_receipt(
    servers: ReplacedServer,
) -> None:
    begun, go = Counter[str](), asyncio.Event()

    async def handler(message: Message) -> None:
        begun[message.text] += 1
        await go.wait()

    async with AsyncRsmq(servers.url) as rsmq:
        await rsmq.create_queue("q", vt=30)
        await rsmq.send_messages("q", ["a", "b"])
        servers.copy()
        worker = RsmqWorker("q", handler, url=servers.url)
        async with working(worker):
            await eventually_async(lambda: begun.total() == 2, within_s=WITHIN_S)
            servers.replace()
            # The new primary does not know that they were received: the worker gets them again.
            await eventually_async(lambda: worker.stats.received == 2, within_s=WITHIN_S)
            await eventually_async(lambda: _received(servers) == 2, within_s=WITHIN_S)
            go.set()
            await eventually_async(lambda: worker.stats.done == 2, within_s=WITHIN_S)
            await rsmq.send_message("q", "c")
            await eventually_async(lambda: worker.stats.done == 3, within_s=WITHIN_S)
    assert begun == {"a": 1, "b": 1, "c": 1}
    assert worker.stats.lost == 0


def _received(servers: ReplacedServer) -> int:
    with Rsmq(servers.second.url) as rsmq:
        return rsmq.get_queue_attributes("q").totalrecv


async def test_a_long_receive_goes_on_at_the_new_primary(servers: ReplacedServer) -> None:
    async with AsyncRsmq(servers.url, realtime=True) as rsmq:
        await rsmq.create_queue("q")
        servers.copy()
        receiving = asyncio.create_task(rsmq.receive_message("q", wait=300))
        with servers.client(servers.first) as db:
            await eventually_async(db.pubsub_channels, within_s=WITHIN_S)
        servers.replace()
        async with AsyncRsmq(servers.second.url, realtime=True) as other:
            await other.send_message("q", "a")
        message = await receiving
        assert message is not None
        assert message.text == "a"
