"""The asyncio store: cancellation, event loops, and one connection for all tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import redis
import uvloop

from tambomq.errors import ReplyLost, StoreRefused
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call
from tests.servers import Server, eventually, eventually_async
from tests.store.proxy import Proxy
from tests.store.twins import echo, incr, script

SLOW = script("local t = redis.call('TIME')[1] + 0 for i = 1, 3e7 do t = t + 1 end return 1")


@pytest.fixture
async def store(server: Server) -> AsyncIterator[AsyncStore]:
    store = AsyncStore(server.url)
    yield store
    await store.close()


def ours(db: redis.Redis) -> int:
    """How many connections of stores the server has."""
    return len([client for client in db.client_list() if client["name"] == "tambomq"])


async def test_all_tasks_share_one_connection(store: AsyncStore, db: redis.Redis) -> None:
    replies = await asyncio.gather(*(store.run(incr()) for _ in range(500)))
    assert sorted(replies) == list(range(1, 501))
    assert ours(db) == 1


async def test_calls_of_one_turn_leave_four_at_a_time(proxy: Proxy) -> None:
    store = AsyncStore(proxy.url)
    await store.run(incr())
    before = proxy.requests
    await asyncio.gather(*(store.run(incr()) for _ in range(100)))
    await store.close()
    # The proxy may read several writes at once, never less than one.
    assert proxy.requests <= before + 25


async def test_cancelled_calls_leave_the_others_in_step(store: AsyncStore) -> None:
    async def work(name: int) -> None:
        for turn in range(100):
            text = f"{name}-{turn}".encode()
            if (name + turn) % 3:
                assert await store.run(echo(text)) == text
            else:
                try:
                    async with asyncio.timeout(0.0005):
                        assert await store.run(echo(text)) == text
                except TimeoutError:
                    pass

    await asyncio.gather(*(work(name) for name in range(20)))


async def test_a_caller_cancelled_while_connecting_affects_no_other(store: AsyncStore) -> None:
    for turns in range(8):
        quitter = asyncio.create_task(store.run(echo(b"quit")))
        for _ in range(turns):
            await asyncio.sleep(0)
        other = asyncio.create_task(store.run(echo(b"stay")))
        quitter.cancel()
        assert await other == b"stay"
        await asyncio.gather(quitter, return_exceptions=True)
        await store.close()


async def test_a_connection_whose_caller_was_cancelled_is_kept_and_closed(
    store: AsyncStore, db: redis.Redis
) -> None:
    quitter = asyncio.create_task(store.run(echo(b"quit")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    quitter.cancel()
    await eventually_async(lambda: ours(db) == 1)
    assert await store.run(echo(b"a")) == b"a"
    assert ours(db) == 1
    await store.close()
    await eventually_async(lambda: ours(db) == 0)


async def test_a_refusal_reaches_all_waiting_callers(server: Server) -> None:
    store = AsyncStore(f"redis://me:wrong@127.0.0.1:{server.port}")
    outcomes = await asyncio.gather(*(store.run(incr()) for _ in range(5)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreRefused] * 5


async def test_one_retried_call_keeps_the_replies_of_the_others(
    proxy: Proxy, db: redis.Redis
) -> None:
    store = AsyncStore(proxy.url)
    await store.run(incr())
    proxy.instead = [b"-TRYAGAIN later\r\n"]
    first = asyncio.create_task(store.run(incr()))
    await eventually_async(lambda: not proxy.instead)
    others = [asyncio.create_task(store.run(incr())) for _ in range(20)]
    replies = await asyncio.gather(first, *others)
    assert sorted(replies) == list(range(2, 23))
    await store.close()


async def test_a_server_slow_to_answer_holds_up_but_loses_nothing(store: AsyncStore) -> None:
    slow = asyncio.create_task(store.run(Call(SLOW, (), (), decode=int)))
    await asyncio.sleep(0)
    assert await asyncio.gather(*(store.run(incr()) for _ in range(10))) == list(range(1, 11))
    assert await slow == 1


async def test_closing_ends_calls_on_their_way(proxy: Proxy) -> None:
    store = AsyncStore(proxy.url)
    await store.run(incr())
    proxy.silent = True
    call = asyncio.create_task(store.run(incr()))
    before = proxy.requests
    await eventually_async(lambda: proxy.requests > before)
    await store.close()
    with pytest.raises(ReplyLost):
        await call


def test_one_loop_after_another_may_use_a_store(server: Server) -> None:
    store = AsyncStore(server.url)

    async def once() -> int:
        try:
            return await store.run(incr())
        finally:
            await store.close()

    assert [asyncio.run(once()) for _ in range(3)] == [1, 2, 3]
    assert len(store._loops) == 1


def test_loops_of_several_threads_may_use_a_store_at_once(server: Server, db: redis.Redis) -> None:
    store = AsyncStore(server.url)
    pool_sizes: list[int] = []

    async def work(name: str) -> None:
        for turn in range(100):
            text = f"{name}-{turn}".encode()
            assert await store.run(echo(text)) == text
        pool_sizes.append(ours(db))
        barrier.wait(60)
        # Each closes what all have open; the second time there is nothing left to do.
        await store.close()

    barrier = threading.Barrier(3)
    threads = [
        threading.Thread(target=lambda name=str(i): asyncio.run(work(name))) for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(pool_sizes) <= 3
    assert len(pool_sizes) == 3
    eventually(lambda: ours(db) == 0)


def test_the_store_works_on_uvloop(server: Server, db: redis.Redis) -> None:
    async def scenario() -> None:
        store = AsyncStore(server.url)
        assert sorted(await asyncio.gather(*(store.run(incr()) for _ in range(100)))) == list(
            range(1, 101)
        )
        for count in range(101, 120):
            assert await store.run(incr()) == count
            # In the loop's own thread: it sees nothing of this.
            db.client_kill_filter(_type="normal", skipme=True)
        async with store.listen("news") as news:
            db.publish("news", "x")
            assert await news.wait(30)
        await store.close()

    uvloop.run(scenario())
