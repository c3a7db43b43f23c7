from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tambomq.console.model import Overview
from tambomq.console.read import sampler as sampler_module
from tambomq.console.read.reader import Reader
from tambomq.console.read.sampler import Sampler
from tambomq.errors import StoreUnavailable
from tambomq.rsmq import AsyncRsmq
from tambomq.store.aio import AsyncStore
from tests.console.read.conftest import CountingStore, rows
from tests.servers import Server, eventually_async


class CountedReader(Reader):
    """A reader that counts its refreshes, and fails while it is told to."""

    def __init__(self, store: AsyncStore) -> None:
        super().__init__(store, max_age_s=0)
        self.refreshes = 0
        self.failure: Exception | None = None

    async def overview(self) -> Overview:
        self.refreshes += 1
        if self.failure is not None:
            raise self.failure
        return await super().overview()


@pytest.fixture
def counted(counting_store: CountingStore) -> CountedReader:
    return CountedReader(counting_store)


@pytest.fixture
async def sampler(
    counted: CountedReader, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Sampler]:
    monkeypatch.setattr(sampler_module, "SECOND_AFTER_S", 0.02)
    monkeypatch.setattr(sampler_module, "LINGER_S", 0.05)
    made = Sampler(counted, every_s=0.02)
    yield made
    await made.close()


async def test_all_viewers_share_one_refresh(sampler: Sampler, counted: CountedReader) -> None:
    async with sampler.watching() as one, sampler.watching() as two:
        first, same = await asyncio.gather(anext(one), anext(two))
        assert first is same
        assert (await anext(one)).at_ms >= first.at_ms
    assert counted.refreshes <= 3


async def test_nothing_is_read_while_there_is_no_viewer(
    sampler: Sampler, counted: CountedReader
) -> None:
    await asyncio.sleep(0)
    assert counted.refreshes == 0
    async with sampler.watching() as updates:
        await anext(updates)
    task = sampler._task
    assert task is not None
    await eventually_async(task.done)
    read = counted.refreshes
    assert (await sampler.latest()).redis.ok
    assert counted.refreshes > read


async def test_the_latest_overview_can_be_had_without_watching(sampler: Sampler) -> None:
    first = await sampler.latest()
    assert first.redis.ok
    assert await sampler.latest() is not None


async def test_the_last_numbers_stay_while_redis_is_lost(
    private_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = AsyncStore(private_server.url, patience_s=0)
    sampler = Sampler(Reader(store, max_age_s=0), every_s=0.05)
    async with AsyncRsmq(private_server.url) as rsmq:
        await rsmq.create_queue("orders")
        await rsmq.send_message("orders", "x")
    async with sampler.watching() as updates:
        before = await anext(updates)
        private_server.kill()
        async for lost in updates:
            if not lost.redis.ok:
                break
        assert rows(lost)["rsmq:orders"].depth == 1
        assert lost.at_ms >= before.at_ms
        assert lost.redis.why
        assert lost.redis.lost_since_ms is not None
        assert lost.redis.next_try_ms is not None
        assert lost.redis.next_try_ms > lost.redis.lost_since_ms
        assert (await anext(updates)).redis.lost_since_ms == lost.redis.lost_since_ms
        private_server.restart()
        async for back in updates:
            if back.redis.ok:
                break
        assert rows(back)["rsmq:orders"].depth == 1
        assert back.redis.lost_since_ms is None
    await sampler.close()
    await store.close()


async def test_a_server_that_was_never_there_gives_an_empty_overview(
    sampler: Sampler, counted: CountedReader
) -> None:
    counted.failure = StoreUnavailable("cannot reach redis://:s3cret@h")
    found = await sampler.latest()
    assert (found.queues, found.redis.ok) == ([], False)
    assert "s3cret" not in found.redis.why


async def test_a_bug_is_logged_and_shown(
    sampler: Sampler, counted: CountedReader, caplog: pytest.LogCaptureFixture
) -> None:
    counted.failure = ZeroDivisionError()
    assert not (await sampler.latest()).redis.ok
    assert "cannot be read" in caplog.text
    counted.failure = None
    async with sampler.watching() as updates:
        async for overview in updates:
            if overview.redis.ok:
                break
