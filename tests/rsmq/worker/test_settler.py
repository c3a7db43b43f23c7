"""Settling while the server refuses writes: the worker survives, and no message runs twice."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import ExitStack

import pytest
import redis

from tambomq.errors import Reject
from tambomq.rsmq import Message, Rsmq, RsmqWorker
from tests.rsmq.working import send, working
from tests.servers.poll import eventually_async
from tests.servers.refusal import REFUSALS, Refusal, refused, refusing_writes
from tests.servers.run import Server

BODIES = [f"m{number}" for number in range(8)]


class GatedHandler:
    """A handler that ends all its calls once `go` is set; odd messages are rejected."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.ended = 0
        self.go = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        self.ran[message.text] += 1
        await self.go.wait()
        self.ended += 1
        if int(message.text[1:]) % 2:
            raise Reject("odd")


def is_settled(rsmq: Rsmq) -> bool:
    return rsmq.get_queue_attributes("q").msgs == 0


@pytest.mark.parametrize("why", REFUSALS)
async def test_messages_handled_while_writes_are_refused_are_settled_afterwards(
    private_server: Server, why: Refusal
) -> None:
    await send(private_server, *BODIES)
    handler = GatedHandler()
    worker = RsmqWorker("q", handler, url=private_server.url)
    with Rsmq(private_server.url) as rsmq:
        async with working(worker) as task:
            await eventually_async(lambda: len(handler.ran) == len(BODIES), within_s=20)
            with ExitStack() as refusal:
                refusal.enter_context(refusing_writes(private_server, why))
                handler.go.set()
                await eventually_async(lambda: handler.ended == len(BODIES), within_s=20)
                await eventually_async(lambda: refused(private_server, why) > 1, within_s=20)
                assert not task.done()
                assert not is_settled(rsmq)
            await eventually_async(lambda: is_settled(rsmq), within_s=30)
        assert set(handler.ran.values()) == {1}
        assert (worker.stats.done, worker.stats.buried, worker.stats.lost) == (4, 4, 0)


async def test_what_a_log_handler_raises_keeps_no_message_from_being_settled(
    private_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: logging.LogRecord) -> bool:
        failed.append("logged")
        raise RuntimeError("a log filter of the user")

    failed, logger = list[str](), logging.getLogger("tambomq.rsmq.worker.settler")
    monkeypatch.setattr(logger, "filters", [broken])
    await send(private_server, *BODIES)
    handler = GatedHandler()
    worker = RsmqWorker("q", handler, url=private_server.url, patience_s=0.1)
    with Rsmq(private_server.url) as rsmq:
        async with working(worker):
            await eventually_async(lambda: len(handler.ran) == len(BODIES), within_s=20)
            with refusing_writes(private_server, "NOREPLICAS"):
                handler.go.set()
                await eventually_async(lambda: failed, within_s=20)
            await eventually_async(lambda: is_settled(rsmq), within_s=30)
        assert (worker.stats.done, worker.stats.buried, worker.stats.lost) == (4, 4, 0)


async def test_a_worker_started_while_writes_are_refused_receives_afterwards(
    private_server: Server,
) -> None:
    await send(private_server, "before")
    ran: list[str] = []
    worker = RsmqWorker("q", lambda message: ran.append(message.text), url=private_server.url)
    with refusing_writes(private_server, "NOREPLICAS"):
        task = asyncio.create_task(worker.run())
        await eventually_async(lambda: refused(private_server, "NOREPLICAS") > 0, within_s=20)
    try:
        await eventually_async(lambda: ran == ["before"], within_s=30)
        assert not task.done()
    finally:
        worker.stop()
        await task


@pytest.mark.slow
async def test_a_message_whose_lease_expires_while_writes_are_refused_runs_once(
    private_server: Server,
) -> None:
    await send(private_server, *BODIES, vt=2)
    handler = GatedHandler()
    worker = RsmqWorker("q", handler, url=private_server.url)
    with Rsmq(private_server.url) as rsmq, redis.Redis.from_url(private_server.url) as db:
        async with working(worker):
            await eventually_async(lambda: len(handler.ran) == len(BODIES), within_s=20)
            with refusing_writes(private_server, "MISCONF"):
                handler.go.set()
                # Until none of them is hidden any more: any consumer could receive them.
                await eventually_async(
                    lambda: rsmq.get_queue_attributes("q").hiddenmsgs == 0, within_s=20
                )
            await eventually_async(lambda: is_settled(rsmq), within_s=30)
        assert db.zcard("rsmq:q-dead") == 4
    assert set(handler.ran.values()) == {1}
    assert (worker.stats.done, worker.stats.buried) == (4, 4)


async def test_a_message_delivered_again_to_the_worker_that_runs_it_is_settled_once(
    server: Server, rsmq: Rsmq
) -> None:
    await send(server, *BODIES)
    handler = GatedHandler()
    worker = RsmqWorker("q", handler, url=server.url, concurrency=20)
    async with working(worker):
        await eventually_async(lambda: len(handler.ran) == len(BODIES), within_s=20)
        for message in rsmq.peek_messages("q", 20):
            # As if its lease had expired unnoticed.
            rsmq.change_message_visibility("q", message.id, 0)
        await eventually_async(
            lambda: all(message.rc == 2 for message in rsmq.peek_messages("q", 20)), within_s=20
        )
        handler.go.set()
        await eventually_async(lambda: is_settled(rsmq), within_s=30)
    assert set(handler.ran.values()) == {1}
    assert (worker.stats.done, worker.stats.buried, worker.stats.lost) == (4, 4, 0)


async def test_without_a_heartbeat_a_message_delivered_again_is_run_again(
    server: Server, rsmq: Rsmq
) -> None:
    await send(server, "m0")
    handler = GatedHandler()
    worker = RsmqWorker("q", handler, url=server.url, heartbeat=None)
    async with working(worker):
        await eventually_async(lambda: handler.ran["m0"] == 1, within_s=20)
        rsmq.change_message_visibility("q", rsmq.peek_messages("q")[0].id, 0)
        await eventually_async(lambda: handler.ran["m0"] == 2, within_s=20)
        handler.go.set()
        await eventually_async(lambda: is_settled(rsmq), within_s=30)
    assert (worker.stats.done, worker.stats.lost) == (1, 1)
