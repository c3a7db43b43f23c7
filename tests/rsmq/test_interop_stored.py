"""Stored data: all clients write the same keys, fields and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import redis

from tambomq.rsmq.keys import DEAD_SUFFIX, Keys
from tambomq.rsmq.ops import settle as settle_ops
from tambomq.store.sync import Store
from tests.peers import fixtures
from tests.peers.driver import PeerError
from tests.peers.fixtures import FOREIGN, OURS, QUICK, Peers
from tests.peers.rsmq import Peer
from tests.servers import Server

pytestmark = pytest.mark.interop

drivers, peers = fixtures.both

QUEUE = "orders"
TEXTS = ["", "plain", "ñandú \u65e5\u672c \U0001f680", 'a "b"\r\n\tc\0d', " 7 "]
ALL_BYTES = bytes(range(256))


@pytest.fixture
def db(each_server: Server) -> Iterator[redis.Redis]:
    """An independent client of the server."""
    with redis.Redis.from_url(each_server.url) as client:
        yield client


# ── bodies ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", TEXTS)
def test_every_client_receives_the_same_text(peers: Peers, text: str) -> None:
    peers.get("ours").create(QUEUE)
    for sender, receiver in product(QUICK, repeat=2):
        if sender == "pyrsmq" and not text:
            continue  # it refuses to send an empty body, but receives it
        id = peers.get(sender).send(QUEUE, text.encode())
        message = peers.get(receiver).pop(QUEUE)
        assert message is not None
        assert (message.id, message.body) == (id, text.encode()), (sender, receiver)


@pytest.mark.parametrize("body", [ALL_BYTES, b"\0", b"\xff" * 1024], ids=["all", "nul", "no-text"])
def test_every_client_that_supports_bytes_receives_the_same_bytes(
    peers: Peers, body: bytes
) -> None:
    peers.get("ours").create(QUEUE)
    for sender, receiver in product((*OURS, "pyrsmq"), repeat=2):
        peers.get(sender).send(QUEUE, body)
        message = peers.get(receiver).pop(QUEUE)
        assert message is not None
        assert message.body == body, (sender, receiver)


def test_a_body_that_node_counts_in_characters_is_received_whole(peers: Peers) -> None:
    ours, node = peers.get("ours"), peers.get("node")
    ours.create(QUEUE, maxsize=1024)
    body = "é".encode() * 1024
    node.send(QUEUE, body)
    message = ours.pop(QUEUE)
    assert message is not None
    assert message.body == body
    with pytest.raises(PeerError, match="messageTooLong"):
        ours.send(QUEUE, body)


def test_ours_and_node_refuse_a_body_that_is_too_long(peers: Peers) -> None:
    peers.get("pyrsmq").create(QUEUE, maxsize=1024)
    for name in (*OURS, "node"):
        assert peers.get(name).send(QUEUE, b"x" * 1024)
        with pytest.raises(PeerError, match="messageTooLong"):
            peers.get(name).send(QUEUE, b"x" * 1025)


# ── keys ─────────────────────────────────────────────────────────────────────

STEPS: list[Callable[[Peer, list[str]], object]] = [
    lambda peer, ids: peer.create(QUEUE, vt=200, delay=300, maxsize=2048),
    lambda peer, ids: ids.append(peer.send(QUEUE, b"default delay")),
    lambda peer, ids: ids.append(peer.send(QUEUE, b"none", delay=0)),
    lambda peer, ids: ids.append(peer.send(QUEUE, b"none either", delay=0)),
    lambda peer, ids: ids.append(peer.send(QUEUE, b"long", delay=9_999_999)),
    lambda peer, ids: peer.receive(QUEUE),
    lambda peer, ids: peer.receive(QUEUE, vt=9_999_999),
    lambda peer, ids: peer.receive(QUEUE),
    lambda peer, ids: peer.hide(QUEUE, ids[1], 0),
    lambda peer, ids: peer.receive(QUEUE),
    lambda peer, ids: peer.hide(QUEUE, ids[0], 100),
    lambda peer, ids: peer.change(QUEUE, maxsize=4096, vt=40),
    lambda peer, ids: peer.delete(QUEUE, ids[1]),
    lambda peer, ids: peer.delete(QUEUE, ids[3]),
    lambda peer, ids: peer.hide(QUEUE, ids[2], 0),
    lambda peer, ids: peer.pop(QUEUE),
    lambda peer, ids: peer.pop(QUEUE),
    lambda peer, ids: peer.drop(QUEUE),
]


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("own", OURS)
def test_the_same_history_leaves_the_same_keys(
    peers: Peers, db: redis.Redis, own: str, foreign: str
) -> None:
    mine, theirs = peers.get(own, ns="a"), peers.get(foreign, ns="b")
    my_ids: list[str] = []
    their_ids: list[str] = []
    for number, step in enumerate(STEPS):
        step(mine, my_ids)
        step(theirs, their_ids)
        assert stored(db, "a", my_ids) == stored(db, "b", their_ids), f"after step {number}"
    assert stored(db, "a", []) == {}
    assert not db.keys("*:receipts")


def stored(db: redis.Redis, ns: str, ids: list[str]) -> dict[str, object]:
    """All keys of a namespace in their order and spelling, ids and times replaced by their kind.

    But for what ours keep beside them: receipts, and for a while which changes were made.
    """
    found: dict[str, object] = {}
    for key in db.scan_iter(f"{ns}:*"):
        if key.endswith(b":receipts") or b":set:" in key:
            assert b":set:" not in key or db.ttl(key) > 0
            continue
        reply: Any = db.type(key)
        kind = reply.decode()
        read = {"hash": "HGETALL", "zset": "ZRANGE", "set": "SMEMBERS"}[kind]
        window = ("0", "-1", "WITHSCORES") if kind == "zset" else ()
        # Read by a script, so that redis-py does not convert the bytes.
        script = f"return redis.call('{read}', KEYS[1], unpack(ARGV))"
        raw: Any = db.eval(script, 1, key, *window)
        values = [_kind_of(value, ids) for value in raw]
        encoding = db.object("encoding", key)
        found[str(key, "ascii").removeprefix(ns)] = (kind, encoding, db.ttl(key), values)
    return found


def _kind_of(value: bytes, ids: list[str]) -> str:
    text = value.decode()
    for number, id in enumerate(ids):
        text = text.replace(id, f"<id {number}>")
    if re.fullmatch(r"\d{13}", text):
        return "<ms>"
    return "<s>" if re.fullmatch(r"\d{10}", text) else text


@pytest.mark.parametrize("receiver", QUICK)
def test_a_receive_hides_by_the_millisecond(peers: Peers, db: redis.Redis, receiver: str) -> None:
    peers.get("node").create(QUEUE, vt=12)
    id = peers.get("ours").send(QUEUE, b"one", delay=0)
    assert db.zscore(f"rsmq:{QUEUE}", id) == int(id[:10], 36) // 1000
    message = peers.get(receiver).receive(QUEUE)
    assert message is not None
    assert db.zscore(f"rsmq:{QUEUE}", id) == message.fr + 12_000
    assert db.hget(f"rsmq:{QUEUE}:Q", f"{id}:fr") == b"%d" % message.fr
    assert db.hget(f"rsmq:{QUEUE}:Q", f"{id}:rc") == b"1"


@pytest.mark.parametrize("name", QUICK)
def test_a_message_deleted_before_a_receive_leaves_no_fields(
    peers: Peers, db: redis.Redis, name: str
) -> None:
    peers.get("ours").create(QUEUE)
    id = peers.get("ours").send(QUEUE, b"one")
    # PyRSMQ returns false, since it counts the fields of a receive; but the message is deleted.
    assert peers.get(name).delete(QUEUE, id) is (name != "pyrsmq")
    assert db.exists(f"rsmq:{QUEUE}") == 0
    assert db.hlen(f"rsmq:{QUEUE}:Q") == 6


# ── what only some clients write ─────────────────────────────────────────────


@pytest.mark.parametrize(("vt", "delay"), [(30.0, 0.0), (2.5, 0.0), (30.0, 1.5)])
def test_settings_with_a_fraction_are_read(
    peers: Peers, db: redis.Redis, vt: float, delay: float
) -> None:
    pyrsmq = peers.get("pyrsmq")
    pyrsmq.create(QUEUE, vt=vt, delay=delay)
    assert db.hget(f"rsmq:{QUEUE}:Q", "vt") == str(vt).encode()
    for name in OURS:
        ours = peers.get(name)
        attributes = ours.attributes(QUEUE)
        assert (attributes["vt"], attributes["delay"]) == (vt, delay)
        id = ours.send(QUEUE, b"one")
        score = db.zscore(f"rsmq:{QUEUE}", id)
        assert score == int(id[:10], 36) // 1000 + delay * 1000
        assert ours.hide(QUEUE, id, 0)
        message = ours.receive(QUEUE)
        assert message is not None
        assert db.zscore(f"rsmq:{QUEUE}", id) == message.fr + vt * 1000
        assert pyrsmq.delete(QUEUE, id)


def test_the_larger_limit_of_pyrsmq_is_read_and_kept(peers: Peers) -> None:
    pyrsmq, ours = peers.get("pyrsmq"), peers.get("ours")
    pyrsmq.create(QUEUE, maxsize=65565)
    assert ours.attributes(QUEUE)["maxsize"] == 65565
    assert ours.send(QUEUE, b"x" * 65565)
    with pytest.raises(PeerError, match="messageTooLong"):
        ours.send(QUEUE, b"x" * 65566)
    assert ours.change(QUEUE, vt=5)["maxsize"] == 65565


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_receipt_is_void_once_a_foreign_consumer_has_the_message(
    peers: Peers, foreign: str
) -> None:
    ours, other = peers.ours().client, peers.get(foreign)
    ours.create_queue(QUEUE)
    ours.send_message(QUEUE, b"one")
    held = ours.receive_message(QUEUE, vt=0)
    assert held is not None
    assert ours.change_message_visibility(QUEUE, held.id, 0, receipt=held.receipt)
    taken = other.receive(QUEUE, vt=100)
    assert taken is not None
    assert taken.id == held.id
    assert not ours.delete_message(QUEUE, held.id, receipt=held.receipt)
    assert not ours.change_message_visibility(QUEUE, held.id, 0, receipt=held.receipt)
    assert ours.delete_messages(QUEUE, [held]) == [False]
    assert other.receive(QUEUE) is None
    assert other.delete(QUEUE, held.id)


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_dead_letter_queue_is_a_plain_queue_to_others(peers: Peers, foreign: str) -> None:
    ours, other, dead = peers.ours().client, peers.get(foreign), QUEUE + DEAD_SUFFIX
    ours.create_queue(QUEUE, vt=17)
    id = other.send(QUEUE, "höllo".encode())
    assert other.receive(QUEUE, vt=0) is not None
    held = ours.receive_message(QUEUE)
    assert held is not None
    store = Store(peers.server.url)
    assert store.run(settle_ops.bury(Keys(), QUEUE, held, dead, "no such customer"))
    store.close()

    assert other.names() == [QUEUE, dead]
    attributes = other.attributes(dead)
    assert (attributes["vt"], attributes["delay"], attributes["maxsize"]) == (17, 0, -1)
    assert (attributes["msgs"], attributes["totalsent"], attributes["totalrecv"]) == (1, 1, 0)
    message = other.receive(dead)
    assert message is not None
    assert (message.id, message.body, message.rc) == (id, "höllo".encode(), 1)
    assert other.delete(dead, id)
    assert other.attributes(dead)["msgs"] == other.attributes(QUEUE)["msgs"] == 0
    assert other.receive(dead) is None
    other.drop(dead)
    assert ours.list_queues() == [QUEUE]
