"""A healthy worker keeps its message though its heartbeat's connection or process is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
import redis

from tambomq.rsmq import Message, Rsmq, RsmqWorker
from tambomq.runtime.heartbeat import ProcessHeartbeat
from tests.rsmq.working import send, working
from tests.servers.poll import eventually_async
from tests.servers.run import Server
from tests.store.proxy import Proxy

pytestmark = pytest.mark.slow

# Long enough that renewals are in time on a busy machine.
VT = 6


class GatedHandler:
    """A handler that runs until `go` is set."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.go = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        self.ran.append(message.id)
        await self.go.wait()


def visible_at(db: redis.Redis) -> float:
    found: Any = db.zrange("rsmq:q", 0, -1, withscores=True)
    return float(found[0][1])


async def renewed_three_times(db: redis.Redis, rsmq: Rsmq) -> None:
    """Wait until the message was renewed three times; no other consumer can receive it."""
    for _ in range(3):
        before = visible_at(db)

        def renewed(before: float = before) -> bool:
            assert rsmq.receive_message("q") is None
            return visible_at(db) > before

        await eventually_async(renewed, within_s=20)


async def test_a_silent_connection_of_the_heartbeat_costs_no_message(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    await send(server, "long", vt=VT)
    handler = GatedHandler()
    with Proxy(server.port) as proxy:
        worker = RsmqWorker("q", handler, url=proxy.url)
        async with working(worker):
            await eventually_async(lambda: handler.ran, within_s=20)
            before, received = visible_at(db), proxy.connections
            await eventually_async(lambda: visible_at(db) > before, within_s=20)
            # The first renewal has opened one more.
            assert proxy.connections == received + 1
            proxy.stall(proxy.connections)
            await renewed_three_times(db, rsmq)
            handler.go.set()
            await eventually_async(lambda: worker.stats.done == 1, within_s=20)
    assert len(handler.ran) == 1


async def test_a_killed_process_of_the_heartbeat_costs_no_message(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    await send(server, "long", vt=VT)
    handler = GatedHandler()
    worker = RsmqWorker("q", handler, url=server.url, heartbeat="process")
    async with working(worker):
        await eventually_async(lambda: handler.ran, within_s=20)
        heartbeat: Any = worker._heartbeat
        assert isinstance(heartbeat, ProcessHeartbeat)
        os.kill(heartbeat._process.pid, signal.SIGKILL)
        await renewed_three_times(db, rsmq)
        handler.go.set()
        await eventually_async(lambda: worker.stats.done == 1, within_s=20)
    assert len(handler.ran) == 1
