"""Clients that do not acknowledge, and whose calls end before the reply: the order stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tambomq.errors import StoreUnavailable
from tambomq.gomq.model import OBSERVE_LIMIT
from tambomq.gomq.server.service import Service
from tambomq.store.aio import AsyncStore
from tests.gomq.conftest import Peer, publish
from tests.servers import Server, eventually_async
from tests.store.proxy import Proxy

BODIES = [b"%03d" % n for n in range(2 * OBSERVE_LIMIT + 20)]


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def service(proxy: Proxy) -> AsyncIterator[Service]:
    """A service in no hurry: nothing but the test calls Redis."""
    store = AsyncStore(proxy.url, patience_s=0)
    service = Service(store)
    yield service
    await service.stop()
    await store.close()


async def ended_call(peer: Peer, proxy: Proxy) -> None:
    """Observe, and hang up before the reply has come."""
    proxy.held.add("reply")
    before = proxy.requests
    observing = asyncio.create_task(peer.observe())
    await eventually_async(lambda: proxy.requests > before, within_s=60)
    observing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await observing


async def test_what_was_popped_for_a_call_that_ended_comes_before_newer_messages(
    service: Service, proxy: Proxy
) -> None:
    peer = Peer(service)
    await peer.subscribe("k")
    await publish(service, "k", *BODIES)
    await ended_call(peer, proxy)
    calls = [asyncio.create_task(peer.observe()) for _ in range(3)]
    await asyncio.sleep(0)
    proxy.held.clear()
    found = [await call for call in calls]
    assert [body for bodies in found for body in bodies] == BODIES


async def test_the_calls_of_another_peer_do_not_wait(service: Service, proxy: Proxy) -> None:
    peer, other = Peer(service, "p"), Peer(service, "q")
    await peer.subscribe("k")
    await other.subscribe("k")
    await publish(service, "k", b"1")
    await ended_call(peer, proxy)
    observing = asyncio.create_task(other.observe())
    before = proxy.requests
    await eventually_async(lambda: proxy.requests > before, within_s=60)
    proxy.held.clear()
    assert await observing == await peer.observe() == [b"1"]


async def test_a_call_that_ends_while_it_waits_for_its_turn_pops_nothing(
    service: Service, proxy: Proxy
) -> None:
    peer = Peer(service)
    await peer.subscribe("k")
    await publish(service, "k", b"1")
    await ended_call(peer, proxy)
    waiting = asyncio.create_task(peer.observe())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    proxy.held.clear()
    assert await peer.observe() == [b"1"]


async def test_a_pop_that_fails_lets_the_next_call_have_its_turn(
    service: Service, proxy: Proxy
) -> None:
    peer = Peer(service)
    await peer.subscribe("k")
    await publish(service, "k", b"1")
    proxy.cut("request", 1)
    with pytest.raises(StoreUnavailable):
        await peer.observe()
    assert await peer.observe() == [b"1"]
