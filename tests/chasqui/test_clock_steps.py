"""The server's clock is set forward while jobs run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tambomq.chasqui import Queue, Worker
from tambomq.chasqui.keys import GROUP, Keys
from tests.chasqui.conftest import working as at_work
from tests.chasqui.working import GatedHandler
from tests.servers import binaries, eventually_async
from tests.servers.clock import SteppedServer, stepped

pytestmark = pytest.mark.slow


@pytest.fixture(
    params=[
        binaries.valkey,
        pytest.param(partial(binaries.redis8, build=False), marks=pytest.mark.interop),
    ],
    ids=["valkey", "redis8"],
)
def clocked(request: pytest.FixtureRequest) -> Iterator[SteppedServer]:
    find: Callable[[], Path | None] = request.param
    if (binary := find()) is None:
        pytest.skip("this server cannot be had on this machine")
    with stepped(binary) as server:
        yield server


def idle_ms(db: Any) -> int:
    """For how long the one pending entry has not been renewed, by the server's clock."""
    (entry,) = db.xpending_range(Keys("q").stream, GROUP, "-", "+", 1)
    return int(entry["time_since_delivered"])


async def test_no_job_runs_twice_after_a_step_of_less_than_two_thirds_of_its_lease(
    clocked: SteppedServer,
) -> None:
    handler = GatedHandler()
    with redis.Redis.from_url(clocked.url) as db:
        async with Queue("q", redis_url=clocked.url) as queue:
            await queue.add("n", "x")
        workers = [
            Worker("q", handler, redis_url=clocked.url, claim_min_idle_ms=30_000) for _ in range(2)
        ]
        async with at_work(workers[0]), at_work(workers[1]):
            await handler.holds(1)
            # The worst moment is just before a renewal.
            await eventually_async(lambda: idle_ms(db) > 6_000, within_s=20)
            clocked.step(19)
            await eventually_async(lambda: idle_ms(db) < 5_000, within_s=20)
            handler.go.set()
            await eventually_async(lambda: sum(w.stats.completed for w in workers) == 1)
    assert handler.begun == ["x"]
