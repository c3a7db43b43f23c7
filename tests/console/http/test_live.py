from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from tambomq.console.http import live
from tambomq.console.http.live import LiveFeed
from tambomq.console.http.problems import Problem
from tests.console.http.conftest import Open
from tests.console.http.memory import MemoryConsole, operation, overview
from tests.servers import eventually_async


@pytest.fixture
def memory() -> MemoryConsole:
    return MemoryConsole()


@pytest.fixture
async def feed(memory: MemoryConsole) -> AsyncIterator[LiveFeed]:
    feed = LiveFeed(memory.parts, max_viewers=2)
    yield feed
    await feed.close()


async def take(events: AsyncIterator[bytes], count: int) -> list[bytes]:
    async with asyncio.timeout(30):
        return [await anext(events) for _ in range(count)]


def depth(event: bytes) -> int:
    data = msgspec.json.decode(event.partition(b"data: ")[2])
    found: int = data["queues"][0]["depth"]
    return found


async def test_a_viewer_gets_the_overview_at_once_and_each_change(
    feed: LiveFeed, memory: MemoryConsole
) -> None:
    feed.enter()
    events = feed.events()
    _, first = await take(events, 2)
    assert first.startswith(b"event: overview\ndata: {")
    assert first.endswith(b"}\n\n")
    memory.source.publish(overview(depth=7))
    assert depth((await take(events, 1))[0]) == 7


async def test_all_viewers_share_one_sample(feed: LiveFeed, memory: MemoryConsole) -> None:
    viewers = []
    for _ in range(2):
        feed.enter()
        viewers.append(feed.events())
    assert [len(await take(each, 2)) for each in viewers] == [2, 2]
    assert memory.source.watchers == 1


async def test_nothing_is_sampled_without_viewers(feed: LiveFeed, memory: MemoryConsole) -> None:
    assert memory.source.watchers == 0
    feed.enter()
    await take(feed.events(), 2)
    assert memory.source.watchers == 1
    feed.leave()
    await eventually_async(lambda: memory.source.watchers == 0)
    assert feed.viewers == 0


async def test_a_slow_viewer_skips_what_it_missed(feed: LiveFeed, memory: MemoryConsole) -> None:
    feed.enter()
    feed.enter()
    slow, quick = feed.events(), feed.events()
    await take(slow, 2)
    await take(quick, 2)
    for number in range(10, 15):
        memory.source.publish(overview(depth=number))
        assert depth((await take(quick, 1))[0]) == number
    assert depth((await take(slow, 1))[0]) == 14


async def test_operations_are_sent_when_they_change(
    feed: LiveFeed, memory: MemoryConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "OPERATIONS_EVERY_S", 0.01)
    memory.actions.running = [operation("o1")]
    feed.enter()
    events = feed.events()
    seen = await take(events, 3)
    assert sum(each.startswith(b"event: operation\n") for each in seen) == 1
    memory.actions.running = [operation("o1", done=2)]
    assert b'"done":2' in (await take(events, 1))[0]


async def test_a_silent_stream_is_kept_alive(
    feed: LiveFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "KEEP_ALIVE_S", 0.01)
    feed.enter()
    events = feed.events()
    async with asyncio.timeout(30):
        while await anext(events) != b": keep-alive\n\n":
            pass


async def test_viewers_are_limited(feed: LiveFeed) -> None:
    feed.enter()
    feed.enter()
    with pytest.raises(Problem) as caught:
        feed.enter()
    assert (caught.value.status, caught.value.kind) == (503, "too_many_viewers")
    feed.leave()
    feed.enter()


async def test_closing_ends_every_stream(feed: LiveFeed) -> None:
    feed.enter()
    events = feed.events()
    await take(events, 2)
    rest = asyncio.ensure_future(take(events, 1))
    await asyncio.sleep(0)
    await feed.close()
    with pytest.raises(StopAsyncIteration):
        await rest
    with pytest.raises(Problem):
        feed.enter()


async def test_a_failing_sample_does_not_end_the_updates(
    feed: LiveFeed, memory: MemoryConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_AGAIN_AFTER_S", 0)
    watching = memory.source.watching
    monkeypatch.setattr(memory.source, "watching", lambda: 1 / 0)
    feed.enter()
    events = feed.events()
    await take(events, 1)
    await asyncio.sleep(0)
    monkeypatch.setattr(memory.source, "watching", watching)
    assert (await take(events, 1))[0].startswith(b"event: overview")


async def test_a_head_request_does_not_become_a_viewer(browse: Open) -> None:
    browser = await browse()
    reply = await browser.head("/api/v1/live")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert browser.memory.console.feed.viewers == 0
