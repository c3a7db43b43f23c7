"""Many subscriptions over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import redis

from tambomq.errors import StoreRefused, StoreUnavailable
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import endpoint
from tests.servers import Server, eventually_async
from tests.store.proxy import Proxy
from tests.store.twins import command


@pytest.fixture
async def store(server: Server) -> AsyncIterator[AsyncStore]:
    store = AsyncStore(server.url)
    yield store
    await store.close()


def listening(db: redis.Redis) -> int:
    """How many connections are in subscribed state."""
    return len(db.client_list(_type="pubsub"))


async def test_a_published_message_reaches_all_subscriptions(
    store: AsyncStore, db: redis.Redis
) -> None:
    async with (
        store.listen("news") as first,
        store.listen("news") as second,
        store.listen("other") as other,
    ):
        db.publish("news", "x")
        assert await first.wait(30)
        assert await second.wait(30)
        assert not await other.wait(0)
        assert listening(db) == 1


async def test_a_thousand_listeners_share_a_connection(store: AsyncStore, db: redis.Redis) -> None:
    async def listen(name: str) -> bool:
        async with store.listen(name) as news:
            ready.release()
            return await news.wait(60)

    ready = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(listen(f"news-{i % 100}")) for i in range(1000)]
    for _ in tasks:
        await ready.acquire()
    assert listening(db) == 1
    for i in range(100):
        db.publish(f"news-{i}", "x")
    assert all(await asyncio.gather(*tasks))


async def test_the_last_subscription_that_closes_unsubscribes_the_channel(
    store: AsyncStore, db: redis.Redis
) -> None:
    async with store.listen("news") as first:
        async with store.listen("news"):
            pass
        db.publish("news", "x")
        assert await first.wait(30)
    await eventually_async(lambda: db.pubsub_numsub("news") == [(b"news", 0)])


async def test_a_channel_subscribed_again_at_once_receives(
    store: AsyncStore, db: redis.Redis
) -> None:
    for _ in range(30):
        async with store.listen("news") as news:
            db.publish("news", "x")
            assert await news.wait(30)


async def test_a_caller_cancelled_while_subscribing_affects_no_other(
    store: AsyncStore, db: redis.Redis
) -> None:
    async def listen() -> None:
        async with store.listen("news"):
            await asyncio.Event().wait()

    for turns in range(12):
        quitter = asyncio.create_task(listen())
        for _ in range(turns):
            await asyncio.sleep(0)
        quitter.cancel()
        async with store.listen("news") as news:
            db.publish("news", "x")
            assert await news.wait(30)
            assert news.is_usable


async def test_a_lost_connection_wakes_all_subscriptions_and_a_new_one_receives(
    store: AsyncStore, db: redis.Redis
) -> None:
    async with store.listen("news") as first, store.listen("other") as second:
        db.client_kill_filter(_type="pubsub")
        for subscription in (first, second):
            # A message may have been missed: wake the waiter so that it checks.
            assert await subscription.wait(30)
            assert not subscription.is_usable
    async with store.listen("news") as again:
        db.publish("news", "x")
        assert await again.wait(30)
        assert again.is_usable


async def test_a_connection_that_confirms_no_subscription_is_replaced(
    proxy: Proxy, db: redis.Redis
) -> None:
    store = AsyncStore(replace(endpoint(proxy.url), reply_timeout_s=0.5))
    async with store.listen("news") as first:
        # As when a NAT forgets a connection on which nothing was sent for long.
        proxy.stall()
        async with asyncio.timeout(60), store.listen("other") as other:
            db.publish("other", "x")
            assert await other.wait(30)
        assert await first.wait(30)
        assert not first.is_usable
    await store.close()


async def test_a_channel_that_is_not_for_us_is_refused_and_the_others_go_on(
    server: Server, db: redis.Redis
) -> None:
    command(db, "ACL", "SETUSER", "deaf", "reset", "on", ">pw", "~*", "+@all", "&ours")
    store = AsyncStore(f"redis://deaf:pw@127.0.0.1:{server.port}")
    async with store.listen("ours") as ours:
        for _ in range(2):
            with pytest.raises(StoreRefused, match="NOPERM"):
                async with store.listen("theirs"):
                    pass
        db.publish("ours", "x")
        assert await ours.wait(30)
        assert ours.is_usable
    await store.close()
    command(db, "ACL", "DELUSER", "deaf")


async def test_listening_waits_for_a_server_and_not_for_ever() -> None:
    store = AsyncStore("redis://127.0.0.1:1", patience_s=0.05)
    with pytest.raises(StoreUnavailable):
        async with store.listen("news"):
            pass


async def test_closing_the_store_wakes_its_subscriptions(store: AsyncStore) -> None:
    async with store.listen("news") as news:
        await store.close()
        assert await news.wait(30)
        assert not news.is_usable
