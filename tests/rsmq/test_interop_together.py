"""Clients that work on one queue at the same time, and wake each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any

import pytest
import redis

from tambomq.rsmq import AsyncRsmq, Message, longpoll
from tests.peers import fixtures
from tests.peers.fixtures import FOREIGN, OURS, QUICK, Peers
from tests.peers.rsmq import Peer, Received
from tests.peers.rsmq_ours import Ours
from tests.servers import Server, eventually, eventually_async

pytestmark = pytest.mark.interop

drivers, peers = fixtures.both

QUEUE = "orders"
CHANNEL = f"rsmq:rt:{QUEUE}"
MESSAGES = 2_000


@pytest.fixture
def db(each_server: Server) -> Iterator[redis.Redis]:
    """An independent client of the server."""
    with redis.Redis.from_url(each_server.url, decode_responses=True) as client:
        yield client


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting receivers poll so rarely that only a notification can wake them in time."""
    monkeypatch.setattr(longpoll, "POLL_EVERY_S", 600.0)


# ── one queue, many consumers ────────────────────────────────────────────────


def test_mixed_consumers_get_each_message_once_per_visibility_period(peers: Peers) -> None:
    ours = peers.ours()
    ours.create(QUEUE, vt=600)
    sent = sorted(fill(peers, MESSAGES))

    first = drain_together(peers, MESSAGES, forget=False)
    assert sorted(message.id for message in first) == sent
    assert {message.rc for message in first} == {1}

    for id in sent:
        assert ours.hide(QUEUE, id, 0)
    second = drain_together(peers, 2 * MESSAGES, forget=True)
    assert sorted(message.id for message in second) == sent
    assert {message.rc for message in second} == {2}
    assert times(first) == times(second)

    attributes = ours.attributes(QUEUE)
    assert (attributes["msgs"], attributes["totalsent"], attributes["totalrecv"]) == (
        0,
        MESSAGES,
        2 * MESSAGES,
    )
    stats = ours.client.get_queue_stats(QUEUE)
    assert (stats.bodies_without_member, stats.stray_fields) == (0, 0)


def test_mixed_consumers_keep_up_with_mixed_senders(peers: Peers) -> None:
    ours = peers.ours()
    ours.create(QUEUE, vt=600)
    senders = [ours, ours, peers.get("ours-async")]
    shares = [range(n, MESSAGES, len(senders)) for n in range(len(senders))]
    with ThreadPoolExecutor() as pool:
        # The foreign clients receive from the beginning; each can do one thing at a time.
        drains = [
            pool.submit(peers.get(name).drain, QUEUE, MESSAGES, forget=True) for name in FOREIGN
        ]
        drains.append(pool.submit(ours.drain, QUEUE, MESSAGES, forget=True))
        sends = [
            pool.submit(send_all, peer, share) for peer, share in zip(senders, shares, strict=True)
        ]
        sent = [id for future in sends for id in future.result()]
        received = [message for future in drains for message in future.result()]
    assert Counter(message.id for message in received) == Counter(sent)
    assert sorted(int(message.body) for message in received) == list(range(MESSAGES))
    assert ours.attributes(QUEUE)["msgs"] == 0


def send_all(peer: Peer, numbers: Iterable[int]) -> list[str]:
    return [peer.send(QUEUE, b"%d" % n) for n in numbers]


def fill(peers: Peers, count: int) -> list[str]:
    turns = islice(cycle(QUICK), count)
    return [peers.get(name).send(QUEUE, b"%d" % n) for n, name in enumerate(turns)]


def drain_together(peers: Peers, total: int, *, forget: bool) -> list[Received]:
    """Messages received by all clients, ours with two threads and several tasks; each got some.

    Each receives one before they compete: a busy machine may leave one of them nothing else.
    """
    consumers = [peers.get(name) for name in (*QUICK, "ours")]
    firsts = [consumer.receive(QUEUE) for consumer in consumers]
    received = [message for message in firsts if message is not None]
    assert len(received) == len(consumers)
    if forget:
        for consumer, message in zip(consumers, received, strict=True):
            assert consumer.delete(QUEUE, message.id)
    with ThreadPoolExecutor(len(consumers)) as pool:
        futures = [
            pool.submit(consumer.drain, QUEUE, total, forget=forget) for consumer in consumers
        ]
        return received + [message for future in futures for message in future.result()]


def times(messages: list[Received]) -> dict[str, int]:
    return {message.id: message.fr for message in messages}


# ── notifications ───────────────────────────────────────────────────────────


@pytest.mark.usefixtures("patient")
def test_a_notification_of_node_wakes_our_waiting_thread(peers: Peers, db: redis.Redis) -> None:
    ours, node = peers.ours(), peers.get("node", realtime=True)
    ours.create(QUEUE)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(ours.client.receive_message, QUEUE, wait=200)
        eventually(lambda: listeners(db) == 1)
        assert not waiting.done()
        id = node.send(QUEUE, b"wake up")
        message = waiting.result(60)
    assert message is not None
    assert (message.id, message.body) == (id, b"wake up")


@pytest.mark.usefixtures("patient")
async def test_a_notification_of_node_wakes_our_waiting_task(peers: Peers, db: redis.Redis) -> None:
    node = peers.get("node", realtime=True)
    node.create(QUEUE)
    async with AsyncRsmq(peers.server.url) as ours:
        waiting = asyncio.create_task(ours.receive_message(QUEUE, wait=200))
        await eventually_async(lambda: listeners(db) == 1)
        assert not waiting.done()
        id = await asyncio.to_thread(node.send, QUEUE, b"wake up")
        message = await asyncio.wait_for(waiting, 60)
    assert message is not None
    assert message.id == id


@pytest.mark.parametrize("sender", FOREIGN)
def test_a_message_without_a_notification_is_found_by_polling(
    peers: Peers, db: redis.Redis, sender: str
) -> None:
    ours = peers.ours()
    ours.create(QUEUE)

    def wait() -> Message | None:
        return ours.client.receive_message(QUEUE, wait=200)

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait)
        eventually(lambda: listeners(db) == 1)
        id = peers.get(sender).send(QUEUE, b"quiet")
        message = waiting.result(60)
    assert message is not None
    assert message.id == id


@pytest.mark.parametrize("sender", [*OURS, "node"])
def test_a_notification_is_the_number_of_messages_in_decimal(
    peers: Peers, db: redis.Redis, sender: str
) -> None:
    peer = peers.get(sender, realtime=True)
    peer.create(QUEUE)
    pubsub: Any
    with db.pubsub(ignore_subscribe_messages=True) as pubsub:  # type: ignore[no-untyped-call]
        pubsub.subscribe(CHANNEL)
        eventually(lambda: listeners(db) == 1)
        for _ in range(11):
            peer.send(QUEUE, b"one")
        heard = [eventually(lambda: pubsub.get_message(timeout=0.1)) for _ in range(11)]
    assert [(note["channel"], note["data"]) for note in heard] == [
        (CHANNEL, str(size)) for size in range(1, 12)
    ]


@pytest.mark.parametrize("sender", OURS)
def test_node_receives_our_notifications(peers: Peers, sender: str) -> None:
    ours, node = peers.get(sender, realtime=True), peers.foreign("node")
    ours.create(QUEUE)
    node.listen(CHANNEL)
    ours.send(QUEUE, b"one")
    ours.send(QUEUE, b"later", delay=100)
    assert node.pop(QUEUE) is not None
    ours.send(QUEUE, b"two")
    assert eventually(lambda: len(published := node.notifications()) == 3 and published) == [
        "1",
        "2",
        "2",
    ]


def test_node_receives_one_notification_for_each_message_of_a_batch(peers: Peers) -> None:
    ours, node = peers.ours(realtime=True), peers.foreign("node")
    ours.create(QUEUE)
    node.listen(CHANNEL)
    ours.client.send_messages(QUEUE, [b"one", b"two", b"three"])
    assert eventually(lambda: len(published := node.notifications()) == 3 and published) == [
        "1",
        "2",
        "3",
    ]


def test_without_realtime_nothing_is_published(peers: Peers) -> None:
    node = peers.foreign("node")
    quiet = Ours(peers.server.url, ns="rsmq", realtime=False)
    quiet.create(QUEUE)
    node.listen(CHANNEL)
    quiet.send(QUEUE, b"psst")
    quiet.close()
    # Notifications arrive in order: if only this one arrives, nothing was published before.
    peers.ours(realtime=True).send(QUEUE, b"aloud")
    assert eventually(node.notifications) == ["2"]


def listeners(db: redis.Redis) -> int:
    ((_, count),) = db.pubsub_numsub(CHANNEL)
    return int(count)
