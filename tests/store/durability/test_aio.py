"""Durable calls of many tasks: they share waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from tambomq.errors import InvalidFormat, NotDurable, StoreUnavailable
from tambomq.store.aio import AsyncStore
from tambomq.store.durability.aio import AsyncDurableStore, async_stores
from tambomq.store.durability.level import Durability
from tests.servers import eventually
from tests.servers.pair import Pair
from tests.store.proxy import Proxy
from tests.store.twins import incr

ONE = Durability("replicas:1", 1, 30)


def waits(pair: Pair) -> int:
    """How many WAIT commands the primary has run."""
    with redis.Redis.from_url(pair.primary.url) as client:
        return int(client.info("commandstats").get("cmdstat_wait", {}).get("calls", 0))


def test_calls_of_many_tasks_share_a_wait(pair: Pair) -> None:
    async def send() -> None:
        store = AsyncDurableStore(AsyncStore(pair.primary.url), ONE)
        await store.run(incr())
        before = waits(pair)
        counts = await asyncio.gather(*(store.run(incr()) for _ in range(1000)))
        assert counts == list(range(2, 1002))
        assert waits(pair) == before + 1
        await store.close()

    asyncio.run(send())


def test_calls_that_come_in_the_wait_go_with_the_next_one(pair: Pair) -> None:
    async def send() -> None:
        store = AsyncDurableStore(AsyncStore(pair.primary.url), ONE)
        await store.run(incr())
        before = waits(pair)
        with pair.frozen_replica():
            first = asyncio.ensure_future(store.run(incr()))
            await asyncio.to_thread(
                eventually, lambda: pair.ask("GET", "count") == b"2", within_s=30
            )
            others = [asyncio.ensure_future(store.run(incr())) for _ in range(50)]
            await asyncio.sleep(0)
        assert await first == 2
        assert await asyncio.gather(*others) == list(range(3, 53))
        assert waits(pair) == before + 2
        await store.close()

    asyncio.run(send())


def test_the_calls_of_a_cancelled_task_are_not_sent(pair: Pair) -> None:
    async def send() -> None:
        store = AsyncDurableStore(AsyncStore(pair.primary.url), ONE)
        kept, dropped = (asyncio.ensure_future(store.run(incr())) for _ in range(2))
        await asyncio.sleep(0)
        dropped.cancel()
        assert await kept == 1
        assert await store.run(incr()) == 2
        await store.close()

    asyncio.run(send())


def test_each_task_has_an_error_of_its_own_with_its_result(pair: Pair) -> None:
    async def send() -> None:
        two = Durability("replicas:2", 2, 0.2)
        store = AsyncDurableStore(AsyncStore(pair.primary.url), two)
        calls = (store.run(incr()) for _ in range(3))
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [e.result for e in errors if isinstance(e, NotDurable)] == [1, 2, 3]
        await store.close()

    asyncio.run(send())


def test_an_unreachable_server_fails_all_tasks_and_the_next_calls_work(pair: Pair) -> None:
    async def send() -> None:
        with Proxy(pair.primary.port) as proxy:
            plain = AsyncStore(proxy.url, patience_s=0)
            store = AsyncDurableStore(plain, ONE)
            proxy.instead = [b"-LOADING wait\r\n" * 4]
            calls = (store.run(incr()) for _ in range(3))
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(e, StoreUnavailable) for e in errors] == [True] * 3
            assert errors[0] is not errors[1]
            assert await store.run(incr()) == 1
            await store.close()
            await plain.close()

    asyncio.run(send())


def test_a_level_is_checked_before_anything_is_sent() -> None:
    with pytest.raises(InvalidFormat):
        async_stores(AsyncStore("redis://127.0.0.1:1"), "disc")
    stores = async_stores(AsyncStore("redis://127.0.0.1:1"), "memory")
    with pytest.raises(InvalidFormat):
        stores.at("replicas:none")


def test_one_store_serves_several_event_loops(pair: Pair) -> None:
    store = AsyncDurableStore(AsyncStore(pair.primary.url), ONE)

    async def send() -> int:
        try:
            return await store.run(incr())
        finally:
            await store.close()

    assert [asyncio.run(send()), asyncio.run(send())] == [1, 2]


def test_a_call_is_done_while_loops_of_other_threads_begin_to_wait(pair: Pair) -> None:
    store: Any = AsyncDurableStore(AsyncStore(pair.primary.url), ONE)

    class OtherLoop:
        """A loop of another thread, in which a call is made while this one is looked at."""

        def is_closed(self) -> bool:
            store._cycles[OtherLoop(), None] = None
            return False

    async def send() -> int:
        store._cycles[OtherLoop(), None] = None
        async with asyncio.timeout(60):
            count: int = await store.run(incr())
        await store.close()
        return count

    assert asyncio.run(send()) == 1
