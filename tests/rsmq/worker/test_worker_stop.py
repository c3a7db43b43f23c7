"""Stopping a worker: running handlers finish, and their messages are settled or released."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from tambomq.rsmq import Message, Rsmq, RsmqWorker
from tests.rsmq.working import send, working
from tests.servers.poll import eventually_async
from tests.servers.run import Server


async def test_stop_finishes_running_handlers_and_receives_nothing_more(
    server: Server, rsmq: Rsmq
) -> None:
    await send(server, *map(str, range(10)))
    begun, finish = asyncio.Semaphore(0), asyncio.Event()

    async def handler(_: Message) -> None:
        begun.release()
        await finish.wait()

    worker = RsmqWorker("q", handler, url=server.url, concurrency=2)
    async with working(worker) as task:
        await begun.acquire()
        await begun.acquire()
        await asyncio.to_thread(worker.stop)
        await eventually_async(lambda: worker._stopping)
        assert not task.done()
        finish.set()
        await asyncio.wait_for(task, 30)
    assert (worker.stats.received, worker.stats.done) == (2, 2)
    assert rsmq.get_queue_attributes("q").msgs == 8


@pytest.mark.parametrize("how", ["grace", "cancel"])
async def test_the_message_of_a_handler_that_does_not_end_is_released(
    server: Server, rsmq: Rsmq, how: str
) -> None:
    await send(server, "endless")
    begun = asyncio.Event()

    async def handler(_: Message) -> None:
        begun.set()
        await asyncio.Event().wait()

    worker = RsmqWorker("q", handler, url=server.url, grace_s=0.05)
    task = asyncio.create_task(worker.run())
    await begun.wait()
    if how == "grace":
        worker.stop()
        await task
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    again = rsmq.receive_message("q")
    assert again is not None
    assert again.rc == 2


@pytest.mark.parametrize("how", ["grace", "cancel"])
async def test_the_message_of_a_thread_that_does_not_end_stays_hidden_until_its_lease_expires(
    server: Server, rsmq: Rsmq, how: str
) -> None:
    await send(server, "endless")
    begun, finish = threading.Event(), threading.Event()

    def handler(_: Message) -> None:
        begun.set()
        finish.wait(200)

    worker = RsmqWorker("q", handler, url=server.url, grace_s=0.05)
    task = asyncio.create_task(worker.run())
    await eventually_async(begun.is_set)
    worker.stop()
    if how == "cancel":
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    # The handler still runs, so no other worker may run the message now.
    assert rsmq.receive_message("q") is None
    finish.set()


async def test_handled_messages_are_deleted_even_when_the_worker_is_cancelled(
    server: Server, rsmq: Rsmq
) -> None:
    await send(server, "quick", "endless")
    begun = asyncio.Event()

    async def handler(message: Message) -> None:
        if message.text == "endless":
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(RsmqWorker("q", handler, url=server.url).run())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [message.text for message in rsmq.peek_messages("q")] == ["endless"]
