"""Watching: messages are pushed until the consumer has no subscription left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
import redis

from tambomq.errors import InvalidFormat
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.service import Service
from tests.gomq.conftest import Peer, Serve, payloads, publish
from tests.servers import Server, eventually_async

WITHIN_S = 60.0


async def taken(sets: AsyncGenerator[pb.RecordSet], count: int) -> list[bytes]:
    """The next *count* payloads."""
    found: list[bytes] = []
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            found += payloads(await anext(sets))
    return found


async def first(peer: Peer) -> bytes:
    """The first payload that *peer* is pushed, alone."""
    async with aclosing(peer.watch()) as sets:
        (body,) = await taken(sets, 1)
        return body


async def rest(sets: AsyncGenerator[pb.RecordSet]) -> list[bytes]:
    """What comes until the end."""
    async with asyncio.timeout(WITHIN_S):
        return [body async for records in sets for body in payloads(records)]


async def begun(service: Service, count: int = 1) -> None:
    """Wait until *count* clients watch."""
    await eventually_async(lambda: service.stats.watchers == count)


@pytest.fixture
async def peer(service: Service) -> Peer:
    """One that has subscribed to k."""
    made = Peer(service)
    await made.subscribe("k")
    return made


async def test_waiting_and_new_messages_are_pushed_in_order(peer: Peer) -> None:
    await publish(peer.service, "k", b"1", b"2")
    sets = peer.watch()
    assert await taken(sets, 2) == [b"1", b"2"]
    for body in (b"3", b"4"):
        await publish(peer.service, "k", body)
        assert await taken(sets, 1) == [body]
    await sets.aclose()


async def test_a_waiting_watcher_gets_messages_published_by_another_service(
    peer: Peer, serve: Serve
) -> None:
    watching = asyncio.create_task(first(peer))
    await begun(peer.service)
    await publish(await serve(), "k", b"1")
    assert await watching == b"1"


async def test_a_waiting_watcher_gets_messages_pushed_by_a_foreign_client(
    peer: Peer, db: redis.Redis
) -> None:
    watching = asyncio.create_task(first(peer))
    await begun(peer.service)
    db.rpush("QUEUE_k", '{"payload":"QQ=="}')
    assert await watching == b"A"


async def test_a_key_that_is_subscribed_later_is_watched_too(peer: Peer) -> None:
    await publish(peer.service, "later", b"1")
    watching = asyncio.create_task(first(peer))
    await begun(peer.service)
    await peer.subscribe("later")
    assert await watching == b"1"


async def test_the_watch_of_an_unsubscribed_consumer_ends_at_once(
    service: Service,
) -> None:
    assert await rest(Peer(service).watch()) == []


async def test_watching_ends_when_the_last_key_is_unsubscribed(peer: Peer) -> None:
    await peer.subscribe("l")
    watching = asyncio.create_task(rest(peer.watch()))
    await begun(peer.service)
    await peer.unsubscribe("k")
    await publish(peer.service, "l", b"1")
    await peer.unsubscribe("k")
    await eventually_async(lambda: peer.service.stats.observed == 1)
    assert not watching.done()
    await peer.unsubscribe("l")
    assert await watching == [b"1"]
    assert peer.service.stats.watchers == 0


async def test_watching_ends_when_the_service_stops(peer: Peer) -> None:
    others = [Peer(peer.service, f"p{n}") for n in range(3)]
    watching = [asyncio.create_task(rest(each.watch())) for each in (peer, *others)]
    await begun(peer.service, 4)
    await peer.service.stop()
    assert await asyncio.gather(*watching) == [[]] * 4


async def test_a_batch_that_the_watcher_did_not_read_waits_again(
    peer: Peer, db: redis.Redis
) -> None:
    await publish(peer.service, "k", b"1", b"2", b"3")
    sets = peer.watch()
    async with asyncio.timeout(WITHIN_S):
        # Its reader leaves with this set in its hands.
        assert payloads(await anext(sets)) == [b"1", b"2", b"3"]
    await sets.aclose()
    name = f"MESSAGES_k_c_{peer.name}"
    await eventually_async(lambda: db.llen(name) == 3)
    assert await peer.observe() == [b"1", b"2", b"3"]


async def test_only_the_last_batch_of_a_watch_waits_again(peer: Peer, db: redis.Redis) -> None:
    sets = peer.watch()
    await publish(peer.service, "k", b"1")
    assert await taken(sets, 1) == [b"1"]
    await publish(peer.service, "k", b"2")
    assert await taken(sets, 1) == [b"2"]
    await sets.aclose()
    await eventually_async(lambda: db.llen(f"MESSAGES_k_c_{peer.name}") == 1)
    assert await peer.observe() == [b"2"]


async def test_a_watcher_that_is_cancelled_while_it_waits_loses_no_message(
    peer: Peer, db: redis.Redis
) -> None:
    watching = asyncio.create_task(rest(peer.watch()))
    await begun(peer.service)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    await begun(peer.service, 0)
    await publish(peer.service, "k", b"1")

    async def came() -> bool:
        return await peer.observe() == [b"1"]

    # Its last look at the queue may still be on the way, and take the message and put it back.
    await eventually_async(came)


async def test_a_watcher_that_is_cancelled_at_any_time_loses_no_message(peer: Peer) -> None:
    got: list[bytes] = []
    for turn in range(30):
        reading = asyncio.create_task(_read(peer.watch(), got))
        await publish(peer.service, "k", b"%d" % turn)
        for _ in range(turn):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])

    async def all_came() -> bool:
        got.extend(await peer.observe())
        return len(got) >= 30

    await eventually_async(all_came)
    assert sorted(got) == sorted(b"%d" % turn for turn in range(30))


async def _read(sets: Any, got: list[bytes]) -> None:
    try:
        async for records in sets:
            got.extend(payloads(records))
    finally:
        await sets.aclose()


async def test_watching_goes_on_after_a_restart_of_redis(
    serve: Serve, private_server: Server
) -> None:
    service = await serve(private_server.url)
    peer = Peer(service)
    await peer.subscribe("k")
    watching = asyncio.create_task(first(peer))
    await begun(service)
    with redis.Redis.from_url(private_server.url) as db:
        # It has looked once: a look whose reply is lost ends with an error, as it must.
        await eventually_async(lambda: db.exists(f"LASTACTION_{peer.name}"))
    private_server.kill()
    private_server.restart()
    await publish(service, "k", b"1")
    assert await watching == b"1"
    # While Redis is still there to take back what was not taken.
    await service.stop()


async def test_a_watcher_is_never_silent(serve: Serve, db: redis.Redis) -> None:
    service = await serve(peer_timeout_s=0.3)
    peer = Peer(service)
    await peer.subscribe("k")
    watching = asyncio.create_task(first(peer))
    await begun(service)
    db.delete(name := f"LASTACTION_{peer.name}")
    # It looks by itself, though nothing came.
    await eventually_async(lambda: db.exists(name))
    await publish(service, "k", b"1")
    assert await watching == b"1"


async def test_a_consumer_without_a_name_is_refused(service: Service) -> None:
    with pytest.raises(InvalidFormat):
        await anext(service.watch(pb.Identification(), Caller("p")))
