"""A fleet leads many queues from one loop, and checks idle ones together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import redis

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.leader.fleet import Fleet
from tambomq.clock import Deadline, now_ms
from tambomq.store.aio import AsyncStore
from tests.chasqui.leading import every, member, put_spec
from tests.servers import Server, eventually_async
from tests.servers.cluster import Cluster

MANY = 300
FAR_MS = 3_600_000


class CountingFleet(Fleet):
    """A fleet that counts its ticks and its renewals of locks."""

    ticks = renewals = 0

    async def _tick(self) -> None:
        await super()._tick()
        self.ticks += 1

    async def _renew(self) -> None:
        await super()._renew()
        self.renewals += 1


@asynccontextmanager
async def fleet(url: str, *queues: str) -> AsyncIterator[CountingFleet]:
    """A fleet that runs, and gives up its locks at the end of the block."""
    store = AsyncStore(url)
    found = CountingFleet(store, "tambo-me")
    for queue in queues:
        found.lead(Keys(queue))
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await found.close(within_s=10)
        await store.close()


def scripts_run(db: redis.Redis) -> int:
    stats = cast("dict[str, dict[str, int]]", db.info("commandstats"))
    return stats.get("cmdstat_evalsha", {}).get("calls", 0)


def holder(db: redis.Redis, *queues: str) -> list[bytes | None]:
    """Return the holders of the locks of *queues*, with one command."""
    locks = [(keys.promoter_lock, keys.scheduler_lock) for keys in map(Keys, queues)]
    return cast("list[bytes | None]", db.mget([lock for both in locks for lock in both]))


async def test_idle_queues_are_checked_by_one_call(server: Server, db: redis.Redis) -> None:
    names = [f"q{n}" for n in range(MANY)]
    async with fleet(server.url, *names) as found:
        await eventually_async(lambda: set(holder(db, *names)) == {b"tambo-me"})
        await eventually_async(lambda: all(led.promoter._is_idle for led in found._led.values()))
        await eventually_async(lambda: all(led.scheduler._is_idle for led in found._led.values()))
        ticks, renewals, scripts = found.ticks, found.renewals, scripts_run(db)
        await eventually_async(lambda: found.ticks >= ticks + 15)
        # Two chunks of queues, each in one script per tick, and their locks with a renewal, which
        # lets fifty queues take a turn of a few scripts.
        turns = (found.renewals - renewals + 2) * 50
        assert scripts_run(db) - scripts <= (found.ticks - ticks + 2) * 4 + turns * 3
        assert set(holder(db, *names)) == {b"tambo-me"}
        assert not found.problem


async def test_a_job_that_is_added_to_an_idle_queue_waits_when_it_is_due(
    server: Server, db: redis.Redis
) -> None:
    keys = Keys("emails")
    async with fleet(server.url, "emails", "others") as found:
        await eventually_async(lambda: all(led.promoter._is_idle for led in found._led.values()))
        db.zadd(keys.delayed, {member("soon"): now_ms() + 150, member("later"): now_ms() + FAR_MS})
        await eventually_async(lambda: db.xlen(keys.stream) == 1)
        assert db.zcard(keys.delayed) == 1


async def test_a_recurring_job_of_an_idle_queue_fires_again_and_again(
    server: Server, db: redis.Redis
) -> None:
    keys = Keys("reports")
    async with fleet(server.url, "reports") as found:
        await eventually_async(lambda: found._led["reports"].scheduler._is_idle)
        put_spec(db, keys, every(100), now_ms() + 100, "k")
        await eventually_async(lambda: db.xlen(keys.stream) >= 3)


async def test_a_promoter_of_an_idle_queue_takes_a_turn_from_time_to_time(
    server: Server, db: redis.Redis
) -> None:
    names = [f"q{n}" for n in range(60)]
    async with fleet(server.url, *names) as found:
        await eventually_async(lambda: all(led.promoter._is_idle for led in found._led.values()))
        for led in found._led.values():
            led.promoter._prune_at = Deadline(0)
        await eventually_async(
            lambda: (
                not any(led.promoter._prune_at.passed for led in found._led.values())
                or found.renewals > 20
            )
        )
        assert found.renewals <= 20


async def test_a_queue_whose_leader_has_left_is_taken_over(server: Server, db: redis.Redis) -> None:
    keys = Keys("emails")
    db.set(keys.promoter_lock, "another")
    db.zadd(keys.delayed, {member("due"): 1})
    async with fleet(server.url, "emails") as found:
        await eventually_async(lambda: holder(db, "emails")[1] == b"tambo-me")
        ticks = found.ticks
        await eventually_async(lambda: found.ticks >= ticks + 3)
        assert (db.xlen(keys.stream), db.get(keys.promoter_lock)) == (0, b"another")
        db.delete(keys.promoter_lock)
        await eventually_async(lambda: db.xlen(keys.stream) == 1)


async def test_a_queue_that_is_released_is_not_taken_again(server: Server, db: redis.Redis) -> None:
    async with fleet(server.url, "emails", "others") as found:
        await eventually_async(lambda: holder(db, "emails") == [b"tambo-me"] * 2)
        found.release("emails")
        await eventually_async(lambda: holder(db, "emails") == [None, None])
        ticks = found.ticks
        await eventually_async(lambda: found.ticks >= ticks + 12)
        assert holder(db, "emails") == [None, None]
        assert holder(db, "others") == [b"tambo-me"] * 2


async def test_queues_of_a_cluster_are_led_wherever_they_are(cluster: Cluster) -> None:
    names = [f"q{n}" for n in range(20)]
    url = cluster.nodes[0].url
    with redis.RedisCluster.from_url(url) as db:
        for name in names:
            db.zadd(Keys(name).delayed, {member("due"): 1})
        async with fleet(url, *names):
            await eventually_async(lambda: all(db.xlen(Keys(name).stream) for name in names))
            await eventually_async(lambda: all(db.get(Keys(n).scheduler_lock) for n in names))
