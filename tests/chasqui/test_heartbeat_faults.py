"""A healthy worker keeps its job though its heartbeat's connection or process is lost."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import redis

from tambomq.chasqui import Queue, Worker
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.worker.in_flight import InFlight
from tests.chasqui.conftest import working
from tests.chasqui.working import GatedHandler
from tests.servers import Server, eventually_async
from tests.store.proxy import Proxy

pytestmark = pytest.mark.slow

# So that a renewal is due every two seconds, also on a machine that has other work to do.
IDLE_MS = 6000


def idle_ms(db: redis.Redis, keys: Keys) -> int:
    (entry,) = db.xpending_range(keys.stream, GROUP, "-", "+", 10)
    return int(entry["time_since_delivered"])


async def renewed_thrice(db: redis.Redis, keys: Keys) -> None:
    """Return after three renewals of the job, in which no other worker could claim it."""
    for _ in range(3):
        idle = [idle_ms(db, keys)]

        def renewed(idle: list[int] = idle) -> bool:
            claimed: Any = db.xautoclaim(keys.stream, GROUP, "thief", IDLE_MS, justid=True)
            assert claimed == []
            idle.append(idle_ms(db, keys))
            return idle[-1] < idle[-2]

        await eventually_async(renewed, within_s=20)


async def test_a_silent_connection_of_the_heartbeat_costs_no_job(
    server: Server, queue: Queue, keys: Keys, db: redis.Redis
) -> None:
    await queue.add("long", 1)
    held = GatedHandler()
    with Proxy(server.port) as proxy:
        worker = Worker(keys.queue, held, redis_url=proxy.url, claim_min_idle_ms=IDLE_MS)
        async with working(worker):
            await held.holds(1)
            await renewed_thrice(db, keys)
            # All that it has, the heartbeat's among them.
            proxy.stall()
            await renewed_thrice(db, keys)
            held.go.set()
            proxy.hang_up()
            await eventually_async(lambda: worker.stats.completed == 1, within_s=20)
    assert held.begun == [1]


async def test_a_killed_process_of_the_heartbeat_costs_no_job(
    server: Server, queue: Queue, keys: Keys, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.add("long", 1)
    held, made = GatedHandler(), list[Any]()
    init = InFlight.__init__

    def noted(in_flight: InFlight, *args: Any) -> None:
        made.append(in_flight)
        init(in_flight, *args)

    monkeypatch.setattr(InFlight, "__init__", noted)
    options: Any = {"claim_min_idle_ms": IDLE_MS, "heartbeat": "process"}
    worker = Worker(keys.queue, held, redis_url=server.url, **options)
    async with working(worker):
        await held.holds(1)
        os.kill(made[0]._heartbeat._process.pid, signal.SIGKILL)
        await renewed_thrice(db, keys)
        held.go.set()
        await eventually_async(lambda: worker.stats.completed == 1, within_s=20)
    assert held.begun == [1]
