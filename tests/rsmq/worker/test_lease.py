"""The lease of a running message is renewed, whatever its handler does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis

from tambomq.rsmq import AsyncRsmq, Message, Rsmq, RsmqWorker
from tambomq.rsmq.worker.lease import RsmqLease, receipts
from tambomq.runtime.heartbeat import Heartbeat, ProcessHeartbeat, ThreadHeartbeat
from tambomq.store.endpoint import endpoint
from tests.rsmq.worker_process import worker_process
from tests.servers.poll import eventually, eventually_async
from tests.servers.run import Server

KINDS = [ThreadHeartbeat, ProcessHeartbeat]


def outlive_the_lease(db: redis.Redis, message: Message) -> None:
    """Wait until the first lease of *message* has expired, and check that it was renewed.

    On a busy machine a renewal may come too late. Workers here run one message at a time, so they
    do not receive it again meanwhile: without renewals this would still wait for ever.
    """
    (score,) = db.zmscore("rsmq:q", [message.id])

    def renewed() -> bool:
        seconds, micros = db.time()
        now = seconds * 1000 + micros // 1000
        (current,) = db.zmscore("rsmq:q", [message.id])
        assert current is not None
        return now > message.visible_at + 500 and current > now

    assert score == message.visible_at
    eventually(renewed, within_s=20)


async def test_a_handler_that_blocks_the_loop_keeps_its_message(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q", vt=1)
    rsmq.send_message("q", "heavy")

    async def handler(message: Message) -> None:
        outlive_the_lease(db, message)

    worker = RsmqWorker("q", handler, url=server.url, concurrency=1)
    task = asyncio.create_task(worker.run())
    await eventually_async(lambda: worker.stats.done == 1, within_s=30)
    worker.stop()
    await task
    assert (worker.stats.received, worker.stats.lost) == (1, 0)


async def test_a_thread_that_blocks_keeps_its_message(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q", vt=1)
    rsmq.send_message("q", "heavy")
    worker = RsmqWorker("q", partial(outlive_the_lease, db), url=server.url, concurrency=1)
    task = asyncio.create_task(worker.run())
    await eventually_async(lambda: worker.stats.done == 1, within_s=30)
    worker.stop()
    await task
    assert (worker.stats.received, worker.stats.lost) == (1, 0)


@pytest.mark.slow
def test_a_handler_that_holds_the_interpreter_keeps_its_message(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    # Longer than a busy machine takes to start the process that renews.
    rsmq.create_queue("q", vt=5)
    rsmq.send_message("q", "heavy")
    with worker_process(server.url, heartbeat="process", hold_interpreter_s=11) as worker:
        eventually(lambda: db.llen("begun"), within_s=20)
        # A second consumer that waits all the while receives nothing.
        while not db.llen("ended"):
            assert rsmq.receive_message("q", wait=0.5) is None
        eventually(lambda: rsmq.get_queue_attributes("q").msgs == 0)
        worker.terminate()
        assert worker.wait(120) == 0
    assert db.lrange("begun", 0, -1) == [f"{worker.pid} heavy".encode()]


@pytest.mark.parametrize("kind", KINDS)
def test_held_messages_are_renewed_until_released(
    server: Server, rsmq: Rsmq, db: redis.Redis, kind: Callable[[RsmqLease], Heartbeat]
) -> None:
    rsmq.create_queue("q", vt=1)
    rsmq.send_messages("q", ["kept", "released"])
    kept, released = rsmq.receive_messages("q", 2)
    heartbeat = kind(RsmqLease(endpoint(server.url), "rsmq", "q", 1))
    try:
        heartbeat.hold(receipts((kept, released)))
        heartbeat.let_go((released.id,))
        outlive_the_lease(db, kept)
        again = rsmq.receive_message("q", wait=60)
        assert again is not None
        assert again.id == released.id
    finally:
        heartbeat.close()
    eventually(lambda: rsmq.receive_message("q"), within_s=10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_was_received_again_is_not_renewed(
    server: Server, rsmq: Rsmq, kind: Callable[[RsmqLease], Heartbeat]
) -> None:
    rsmq.create_queue("q", vt=1)
    rsmq.send_messages("q", ["stale", "fresh"])
    stale, fresh = rsmq.receive_messages("q", 2, vt=0)
    (other,) = rsmq.receive_messages("q", 1, vt=3600)
    assert other.id == stale.id
    heartbeat = kind(RsmqLease(endpoint(server.url), "rsmq", "q", 1))
    try:
        heartbeat.hold(receipts((stale, fresh)))
        eventually(lambda: rsmq.peek_messages("q")[0].visible_at > fresh.visible_at)
        assert rsmq.peek_messages("q")[1].visible_at == other.visible_at
    finally:
        heartbeat.close()


async def test_a_stale_worker_cannot_delete_a_message_that_another_holds(
    server: Server, async_rsmq: AsyncRsmq
) -> None:
    await async_rsmq.create_queue("q", vt=1)
    await async_rsmq.send_message("q", "contested")
    taken: list[Message] = []

    async def handler(_: Message) -> None:
        other = await async_rsmq.receive_message("q", vt=3600, wait=60)
        assert other is not None
        taken.append(other)

    worker = RsmqWorker("q", handler, url=server.url, heartbeat=None, concurrency=1)
    task = asyncio.create_task(worker.run())
    await eventually_async(lambda: worker.stats.lost == 1, within_s=20)
    worker.stop()
    await task
    assert worker.stats.done == 0
    assert await async_rsmq.delete_message("q", taken[0].id, receipt=taken[0].receipt)


async def test_the_heartbeat_asks_an_async_credential_provider_too(private_server: Server) -> None:
    with Rsmq(private_server.url) as rsmq:
        rsmq.create_queue("q", vt=1)
        rsmq.send_message("q", "guarded")
    db = redis.Redis.from_url(private_server.url)
    db.config_set("requirepass", "secret")

    async def credentials() -> tuple[str, str]:
        await asyncio.sleep(0)
        return "", "secret"

    async def handler(message: Message) -> None:
        await asyncio.to_thread(outlive_the_lease, db, message)

    options: Any = {"credentials": credentials, "concurrency": 1}
    worker = RsmqWorker("q", handler, url=private_server.url, **options)
    task = asyncio.create_task(worker.run())
    await eventually_async(lambda: worker.stats.done == 1, within_s=30)
    worker.stop()
    await task
    db.close()
    assert (worker.stats.received, worker.stats.lost) == (1, 0)
