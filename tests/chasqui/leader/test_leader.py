"""Leader election: acquiring, renewing and passing on the lock, and the cost of a standby."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import redis

from tambomq.chasqui import Worker
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.leader.leader import STANDBY_POLL_S, Leader
from tambomq.chasqui.leader.promoter import Promoter
from tambomq.chasqui.leader.scheduler import Scheduler
from tambomq.chasqui.ops.leader import LeaderConfig
from tambomq.clock import now_ms
from tambomq.errors import WrongType
from tambomq.store.aio import AsyncStore
from tests.chasqui.conftest import working
from tests.chasqui.leading import (
    calls_made,
    every,
    fired,
    member,
    on_each_server,
    promoter,
    put_spec,
    running,
    scheduler,
    waiting,
)
from tests.servers import Server, eventually_async

Make = Callable[..., AbstractAsyncContextManager[Leader]]
TTL_MS = 5_000
RUN_ONE = """
import asyncio, sys
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.leader import LeaderConfig
from tambomq.chasqui.leader.promoter import Promoter
from tambomq.store.aio import AsyncStore
async def main(url, queue):
    await Promoter(AsyncStore(url), LeaderConfig(Keys(queue), "tambo-doomed")).run()
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=[promoter, scheduler])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


@pytest.fixture
def lock(make: Make, keys: Keys) -> str:
    return keys.promoter_lock if make is promoter else keys.scheduler_lock


@on_each_server
async def test_a_leader_holds_the_lock_and_renews_it_until_it_is_closed(
    each_server: Server, keys: Keys, make: Make, lock: str
) -> None:
    db = redis.Redis.from_url(each_server.url)
    async with make(each_server.url, keys, holder="tambo-a") as leader:
        async with running(leader):
            await eventually_async(lambda: leader.is_leader)
            assert db.get(lock) == b"tambo-a"
            assert 0 < db.pttl(lock) <= TTL_MS
            db.pexpire(lock, 4_000)
            await eventually_async(lambda: db.pttl(lock) > 4_000)
        assert not db.exists(lock)
    db.close()


async def test_a_standby_leads_as_soon_as_the_leader_resigns(
    server: Server, db: redis.Redis, keys: Keys, make: Make, lock: str
) -> None:
    async with (
        make(server.url, keys, holder="tambo-a") as first,
        make(server.url, keys, holder="tambo-b") as second,
        running(second),
    ):
        async with running(first):
            await eventually_async(lambda: first.is_leader or second.is_leader)
            leads, waits = (first, second) if first.is_leader else (second, first)
            assert await waits.turn() == STANDBY_POLL_S
            assert (leads.is_leader, waits.is_leader) == (True, False)
        await eventually_async(lambda: second.is_leader)
        assert db.get(lock) == b"tambo-b"


async def test_a_leader_that_never_led_takes_no_lock_away_when_it_ends(
    server: Server, db: redis.Redis, keys: Keys, make: Make, lock: str
) -> None:
    db.set(lock, "c-somebody", ex=5)
    async with make(server.url, keys) as leader:
        await leader.turn()
        async with running(leader):
            assert not leader.is_leader
    assert db.get(lock) == b"c-somebody"


async def test_an_expired_lock_is_acquired_by_another(
    server: Server, db: redis.Redis, keys: Keys, make: Make, lock: str
) -> None:
    db.set(lock, "c-crashed", px=300)
    async with make(server.url, keys) as leader, running(leader):
        await eventually_async(lambda: leader.is_leader)


async def test_a_standby_makes_one_call_every_half_second(
    server: Server, db: redis.Redis, keys: Keys, make: Make, lock: str
) -> None:
    db.set(lock, "c-somebody")
    db.zadd(keys.delayed, {member("a"): 1})
    put_spec(db, keys, every(), now_ms(), "k")
    async with make(server.url, keys) as leader:
        await leader.turn()
        before = calls_made(db)
        for _ in range(3):
            assert await leader.turn() == STANDBY_POLL_S
        assert calls_made(db) == before + 3
    assert not db.exists(keys.stream)


async def test_a_stale_promoter_promotes_nothing(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    async with promoter(server.url, keys, holder="tambo-a") as stale:
        await stale.turn()
        assert stale.is_leader
        db.set(keys.promoter_lock, "tambo-b", ex=5)
        db.zadd(keys.delayed, {member("a"): 1})
        assert await stale.turn() == STANDBY_POLL_S
    assert (db.zcard(keys.delayed), db.xlen(keys.stream), stale.is_leader) == (1, 0, False)


async def test_a_scheduler_that_froze_between_reading_and_firing_fires_nothing(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    put_spec(db, keys, every(), now_ms(), "k")

    class Freezes(AsyncStore):
        """Passes the lock on before the last call of a turn that fires."""

        async def run(self, call: Any) -> Any:
            if keys.spec("k") in call.keys:
                db.set(keys.scheduler_lock, "tambo-b", ex=5)
            return await super().run(call)

    store = Freezes(server.url)
    stale = Scheduler(store, LeaderConfig(keys, "tambo-a"))
    await stale.turn()
    await store.close()
    assert (db.xlen(keys.stream), fired(db, keys)) == (0, 0)


async def test_a_fire_that_its_successor_has_made_is_not_made_again(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    put_spec(db, keys, every(), now_ms(), "k")

    class FiredMeanwhile(AsyncStore):
        """Lets another fire first, even though the lock came back."""

        async def run(self, call: Any) -> Any:
            if keys.spec("k") in call.keys:
                db.zincrby(keys.repeat, 60_000, "k")
            return await super().run(call)

    store = FiredMeanwhile(server.url)
    await Scheduler(store, LeaderConfig(keys, "tambo-a")).turn()
    await store.close()
    assert db.xlen(keys.stream) == 0


@pytest.mark.slow
async def test_a_killed_leader_has_a_successor_when_its_lock_runs_out(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    doomed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUN_ONE, server.url, keys.queue
    )
    try:
        await eventually_async(lambda: db.get(keys.promoter_lock) == b"tambo-doomed", within_s=10)
    finally:
        os.kill(doomed.pid, signal.SIGKILL)
        await doomed.wait()
    assert db.get(keys.promoter_lock) == b"tambo-doomed"
    db.zadd(keys.delayed, {member("a"): 1})
    async with promoter(server.url, keys) as heir, running(heir):
        await eventually_async(lambda: waiting(db, keys) == [("a", "")], within_s=15)
    assert heir.is_leader is True


async def test_a_leader_survives_a_server_that_goes_away(
    private_server: Server, keys: Keys
) -> None:
    async with brief(private_server.url, keys) as leader, running(leader):
        await eventually_async(lambda: leader.is_leader)
        private_server.kill()
        private_server.restart()
        with redis.Redis.from_url(private_server.url) as db:
            db.zadd(keys.delayed, {member("a"): 1})
            await eventually_async(lambda: waiting(db, keys) == [("a", "")], within_s=15)


@asynccontextmanager
async def brief(url: str, keys: Keys) -> AsyncIterator[Promoter]:
    """A promoter that gives up soon on a server that does not reply."""
    store = AsyncStore(url, patience_s=0.05)
    yield Promoter(store, LeaderConfig(keys, "tambo-a"))
    await store.close()


class Failing(Leader):
    """Fails at each turn."""

    turns = 0

    async def turn(self) -> float:
        self.turns += 1
        raise WrongType(("key",))


async def test_a_repeated_failure_is_logged_once(
    server: Server, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    store = AsyncStore(server.url)
    leader = Failing(store, LeaderConfig(keys, "tambo-a"), keys.promoter_lock)
    async with running(leader):
        await eventually_async(lambda: leader.turns >= 4)
    await store.close()
    assert len([each for each in caplog.messages if "of another type" in each]) == 1


async def test_a_leader_that_is_cancelled_resigns(
    server: Server, db: redis.Redis, keys: Keys, make: Make, lock: str
) -> None:
    async with make(server.url, keys) as leader:
        task = asyncio.create_task(leader.run())
        await eventually_async(lambda: leader.is_leader)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not db.exists(lock)


async def test_a_worker_acquires_and_releases_both_leader_locks(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    async def handler(_: object) -> None: ...

    locks = (keys.promoter_lock, keys.scheduler_lock)
    worker = Worker(keys.queue, handler, redis_url=server.url, consumer_id="me")
    async with working(worker):
        await eventually_async(lambda: db.mget(*locks) == [b"tambo-me", b"tambo-me"])
    assert not db.exists(*locks)


@pytest.mark.parametrize(
    ("options", "left"), [({"delayed_enabled": False}, 1), ({"run_scheduler": False}, 0)]
)
async def test_a_worker_leads_only_as_its_options_say(
    server: Server, db: redis.Redis, keys: Keys, options: dict[str, bool], left: int
) -> None:
    async def handler(_: object) -> None: ...

    locks = (keys.promoter_lock, keys.scheduler_lock)
    worker = Worker(keys.queue, handler, redis_url=server.url, **options)  # type: ignore[arg-type]
    async with working(worker):
        await eventually_async(lambda: db.exists(locks[left]))
        assert not db.exists(locks[1 - left])
