"""One queue, several clients: each step of a message may be done by any of them."""

from __future__ import annotations

import re
from functools import partial
from itertools import product

import pytest
import redis

from tests.peers import fixtures
from tests.peers.driver import PeerError
from tests.peers.fixtures import FOREIGN, OURS, QUICK, Peers
from tests.servers import eventually

pytestmark = pytest.mark.interop

drivers, peers = fixtures.both

QUEUE = "orders"
UNKNOWN_ID = "k" * 32

# At least one of our clients and one foreign one.
TRIPLES = [
    parts
    for parts in product(QUICK, repeat=3)
    if not set(parts) <= set(OURS) and not set(parts) <= set(FOREIGN)
]
PAIRS = [*product(OURS, FOREIGN), *product(FOREIGN, OURS)]


@pytest.mark.parametrize(("maker", "sender", "receiver"), TRIPLES)
def test_a_message_may_be_created_sent_and_received_by_different_clients(
    peers: Peers, maker: str, sender: str, receiver: str
) -> None:
    a, b, c = peers.get(maker), peers.get(sender), peers.get(receiver)
    a.create(QUEUE)
    id = b.send(QUEUE, b"one")
    message = c.receive(QUEUE)
    assert message is not None
    assert (message.id, message.body, message.rc) == (id, b"one", 1)
    assert a.receive(QUEUE) is None
    assert b.delete(QUEUE, id)
    assert not a.delete(QUEUE, id)
    c.drop(QUEUE)
    assert a.names() == b.names() == c.names() == []


@pytest.mark.parametrize(("sender", "taker"), PAIRS)
def test_messages_are_popped_in_the_order_they_were_sent(
    peers: Peers, sender: str, taker: str
) -> None:
    a, b = peers.get(sender), peers.get(taker)
    a.create(QUEUE)
    ids = [a.send(QUEUE, b"%d" % n) for n in range(20)]
    popped = [message for _ in ids if (message := b.pop(QUEUE))]
    assert [message.id for message in popped] == ids
    assert [message.body for message in popped] == [b"%d" % n for n in range(20)]
    assert b.pop(QUEUE) is None
    assert a.attributes(QUEUE)["msgs"] == 0


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_receives_are_counted_together(peers: Peers, first: str, second: str) -> None:
    a, b = peers.get(first), peers.get(second)
    a.create(QUEUE)
    a.send(QUEUE, b"again")
    turns = [(a, 1), (b, 2), (a, 3), (b, 4)]
    received = [(peer.receive(QUEUE, vt=0), count) for peer, count in turns]
    assert [message and message.rc for message, _ in received] == [count for _, count in received]
    assert len({message and message.fr for message, _ in received}) == 1
    popped = b.pop(QUEUE)
    assert popped is not None
    assert (popped.rc, popped.fr) == (5, received[0][0] and received[0][0].fr)


@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
def test_a_delay_of_one_client_is_respected_by_others(
    peers: Peers, sender: str, receiver: str
) -> None:
    a, b = peers.get(sender), peers.get(receiver)
    a.create(QUEUE, delay=100)
    own = a.send(QUEUE, b"the queue's delay")
    given = a.send(QUEUE, b"its own delay", delay=200)
    soon = a.send(QUEUE, b"none", delay=0)
    message = b.pop(QUEUE)
    assert message is not None
    assert message.id == soon
    assert b.pop(QUEUE) is None
    for id in (given, own):
        assert b.hide(QUEUE, id, 0)
        popped = a.pop(QUEUE)
        assert popped is not None
        assert popped.id == id


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_hidden_message_is_shown_and_hidden_by_others(
    peers: Peers, first: str, second: str
) -> None:
    a, b = peers.get(first), peers.get(second)
    a.create(QUEUE)
    id = b.send(QUEUE, b"hide and seek")
    assert a.receive(QUEUE, vt=100) is not None
    assert b.receive(QUEUE) is None
    assert b.hide(QUEUE, id, 0)
    assert a.receive(QUEUE, vt=0) is not None
    assert a.hide(QUEUE, id, 100)
    assert b.receive(QUEUE) is None
    assert not b.hide(QUEUE, UNKNOWN_ID, 1)
    assert not a.hide(QUEUE, UNKNOWN_ID, 1)


def test_a_message_is_redelivered_after_its_visibility_timeout(peers: Peers) -> None:
    # All in parallel, so that the test waits for one second only.
    for first, second in PAIRS:
        queue = f"{first}_{second}"
        peers.get(first).create(queue, vt=1)
        peers.get(second).send(queue, b"back soon")
        assert peers.get(first).receive(queue) is not None
    for first, second in PAIRS:
        again = eventually(partial(peers.get(second).receive, f"{first}_{second}"))
        assert again is not None
        assert again.rc == 2
        assert again.fr + 1000 <= _now_ms(peers)


def test_every_client_reports_the_same_attributes_of_a_queue(peers: Peers) -> None:
    for maker in QUICK:
        queue = f"of_{maker}"
        peers.get(maker).create(queue, vt=7, delay=0, maxsize=2048)
        for sender in QUICK:
            peers.get(sender).send(queue, b"one")
            peers.get(sender).receive(queue, vt=50)
            peers.get(sender).send(queue, b"two", delay=50)
            peers.get(sender).send(queue, b"three")
        for taker in QUICK:
            peers.get(taker).pop(queue)
        peers.get(maker).send(queue, b"left")
    settings = {"vt": 7, "delay": 0, "maxsize": 2048}
    counts = {"totalrecv": 8, "totalsent": 13, "msgs": 9, "hiddenmsgs": 8}

    def all_agree() -> bool:
        # Node takes all of the current second for the future: it agrees when that is over.
        for maker, reader in product(QUICK, repeat=2):
            attributes = dict(peers.get(reader).attributes(f"of_{maker}"))
            assert 0 <= _now_ms(peers) // 1000 - attributes.pop("created") < 60, reader
            assert 0 <= _now_ms(peers) // 1000 - attributes.pop("modified") < 60, reader
            assert attributes == settings | counts, reader
        return True

    assert eventually(all_agree)


@pytest.mark.parametrize(("maker", "changer"), PAIRS)
def test_a_change_of_a_queue_is_seen_and_kept_by_others(
    peers: Peers, maker: str, changer: str
) -> None:
    a, b = peers.get(maker), peers.get(changer)
    a.create(QUEUE)
    attributes = b.change(QUEUE, vt=60, delay=5, maxsize=-1)
    assert (attributes["vt"], attributes["delay"], attributes["maxsize"]) == (60, 5, -1)
    assert dict(a.attributes(QUEUE)) == dict(attributes)
    b.change(QUEUE, delay=0)
    id = a.send(QUEUE, b"x" * 70_000)
    message = a.receive(QUEUE)
    assert message is not None
    assert message.id == id
    with redis.Redis.from_url(peers.server.url) as db:
        assert db.zscore(f"rsmq:{QUEUE}", id) == message.fr + 60_000


@pytest.mark.parametrize(("maker", "other"), PAIRS)
def test_the_same_errors_have_the_same_names(peers: Peers, maker: str, other: str) -> None:
    a, b = peers.get(maker), peers.get(other)
    a.create(QUEUE)
    with pytest.raises(PeerError, match="queueExists"):
        b.create(QUEUE)
    a.drop(QUEUE)
    for mistake in (
        lambda: b.drop(QUEUE),
        lambda: b.attributes(QUEUE),
        lambda: b.send(QUEUE, b"one"),
        lambda: b.receive(QUEUE),
        lambda: b.pop(QUEUE),
        lambda: b.hide(QUEUE, UNKNOWN_ID, 1),
    ):
        with pytest.raises(PeerError, match="queueNotFound"):
            mistake()


@pytest.mark.parametrize("sender", QUICK)
def test_an_id_is_32_characters_that_begin_with_the_time(peers: Peers, sender: str) -> None:
    ours, node = peers.get("ours"), peers.get("node")
    ours.create(QUEUE)
    before = _now_ms(peers)
    id = peers.get(sender).send(QUEUE, b"one")
    after = _now_ms(peers)
    assert re.fullmatch(r"[0-9a-z]{10}[0-9A-Za-z]{22}", id)
    assert before <= int(id[:10], 36) // 1000 <= after
    readers = [peer.receive(QUEUE, vt=0) for peer in (ours, node)]
    assert [message and message.sent for message in readers] == [int(id[:10], 36) // 1000] * 2


def test_clients_share_queues_in_another_namespace(peers: Peers) -> None:
    elsewhere = [peers.get(name, ns="{shop}") for name in QUICK]
    elsewhere[0].create(QUEUE)
    assert [peer.names() for peer in elsewhere] == [[QUEUE]] * len(QUICK)
    assert all(peer.send(QUEUE, b"one") for peer in elsewhere)
    assert all(peer.pop(QUEUE) for peer in elsewhere)
    with redis.Redis.from_url(peers.server.url) as db:
        assert set(db.keys()) == {b"{shop}:QUEUES", b"{shop}:orders:Q"}


def _now_ms(peers: Peers) -> int:
    with redis.Redis.from_url(peers.server.url) as db:
        seconds, micros = db.time()
    return int(seconds) * 1000 + int(micros) // 1000
