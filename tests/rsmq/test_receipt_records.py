"""Records of deliveries: unique, void after the next delivery, deleted with the message."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.bulk.lease_model import AckCounts, LeaseRequest
from tambomq.bulk.redrives import Redrive
from tambomq.rsmq import Message, Rsmq
from tambomq.rsmq.bulk import redrive as redrive_ops
from tambomq.rsmq.bulk.lease import RsmqLeaseOps
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import settle as settle_ops
from tambomq.store.sync import Store

KEYS = Keys()
LEASE_OPS = RsmqLeaseOps(KEYS)
RECEIPTS = KEYS.receipts("q")
WEEK_S = 7 * 24 * 3600


@pytest.fixture(autouse=True)
def queue(rsmq: Rsmq) -> None:
    rsmq.create_queue("q", vt=100)


def received(rsmq: Rsmq, queue: str = "q", *, vt: float | None = None) -> Message:
    message = rsmq.receive_message(queue, vt=vt)
    assert message is not None
    return message


def redrive(store: Store, id: str, name: str = "r") -> Redrive:
    options = Redrive(
        name, "", "", "reset", until="0", dead="q-dead", begun_ms=1, selected=1, canary=0
    )
    store.run(redrive_ops.begin(KEYS, "q", options))
    assert (
        store.run(redrive_ops.move(KEYS, "q", options, [redrive_ops.RedrivenMessage(id)])).total
        == 1
    )
    return options


def foreign_receive(db: Any, id: str, queue: str = "q") -> None:
    """Receive like a client that does not know receipts."""
    db.hincrby(KEYS.data(queue), f"{id}:rc", 1)
    db.hsetnx(KEYS.data(queue), f"{id}:fr", 1)


def settles(rsmq: Rsmq, store: Store, message: Message, queue: str = "q") -> list[bool]:
    """Try every operation that takes a receipt; for each, whether it was done."""
    id, receipt = message.id, message.receipt
    return [
        rsmq.change_message_visibility(queue, id, 100, receipt=receipt),
        store.run(settle_ops.bury(KEYS, queue, message, "elsewhere", "why")),
        *rsmq.delete_messages(queue, [message]),
        rsmq.delete_message(queue, id, receipt=receipt),
    ]


@pytest.mark.parametrize("by", ["ours", "foreign"])
def test_a_receipt_from_before_a_redrive_settles_nothing(
    rsmq: Rsmq, store: Store, db: redis.Redis, by: str
) -> None:
    rsmq.send_message("q", "pay 42")
    stale = received(rsmq, vt=0)
    other = received(rsmq)
    assert store.run(settle_ops.bury(KEYS, "q", other, "q-dead", "rejected"))
    redrive(store, stale.id)
    assert not any(settles(rsmq, store, stale))
    if by == "foreign":
        foreign_receive(db, stale.id)
    else:
        assert received(rsmq).rc == stale.rc
    assert not any(settles(rsmq, store, stale))
    assert rsmq.get_queue_attributes("q").msgs == 1


def test_a_receipt_from_a_server_that_lost_the_receive_settles_nothing(
    rsmq: Rsmq, store: Store, db: Any
) -> None:
    rsmq.send_message("q", "pay 42")
    replica = {key: db.dump(key) for key in db.scan_iter()}
    lost = received(rsmq)
    db.flushall()
    for key, value in replica.items():
        db.restore(key, 0, value)
    holder = received(rsmq)
    assert (lost.id, lost.rc) == (holder.id, holder.rc)
    assert not any(settles(rsmq, store, lost))
    assert rsmq.delete_message("q", holder.id, receipt=holder.receipt)


def test_the_receipt_of_a_dead_letter_is_void_after_it_was_redriven_and_buried_again(
    rsmq: Rsmq, store: Store, db: redis.Redis
) -> None:
    rsmq.send_message("q", "x")
    store.run(settle_ops.bury(KEYS, "q", received(rsmq), "q-dead", "why"))
    stale = received(rsmq, "q-dead", vt=0)
    redrive(store, stale.id)
    store.run(settle_ops.bury(KEYS, "q", received(rsmq), "q-dead", "why"))
    foreign_receive(db, stale.id, "q-dead")
    assert not any(settles(rsmq, store, stale, "q-dead"))


def test_a_query_does_not_acknowledge_a_message_that_was_redriven_to_another_consumer(
    rsmq: Rsmq, store: Store, db: redis.Redis
) -> None:
    first, _ = rsmq.send_messages("q", ["x", "y"])
    request = LeaseRequest("q", "l", "one", "driver one")
    store.run(LEASE_OPS.attach(request))
    assert store.follow(LEASE_OPS.claim(request, 1, "token", 1)).size == 1
    db.zadd(KEYS.messages("q"), {first: 1})
    other = received(rsmq, vt=100)
    store.run(settle_ops.bury(KEYS, "q", other, "q-dead", "rejected"))
    redrive(store, other.id)
    holders = {m.id: m for m in rsmq.receive_messages("q", 2)}
    assert holders[other.id].rc == 1
    assert store.follow(LEASE_OPS.renew(request)) == 1
    assert store.follow(LEASE_OPS.acknowledge(request, 1, "token")) == AckCounts(lost=1)
    assert rsmq.delete_messages("q", holders.values()) == [True, True]


def test_a_claim_without_tokens_is_acknowledged_by_its_counts(
    rsmq: Rsmq, store: Store, db: redis.Redis
) -> None:
    rsmq.send_messages("q", ["x", "y"])
    request = LeaseRequest("q", "l", "one", "driver one")
    store.run(LEASE_OPS.attach(request))
    store.follow(LEASE_OPS.claim(request, 1, "token", 2))
    db.hdel(KEYS.ledger("q", "l"), "token")
    db.delete(RECEIPTS)
    assert store.follow(LEASE_OPS.renew(request)) == 0
    assert store.follow(LEASE_OPS.acknowledge(request, 1, "token")) == AckCounts(done=2)


def test_a_message_received_by_a_foreign_client_can_be_settled_by_a_peeked_receipt(
    rsmq: Rsmq, db: redis.Redis
) -> None:
    id = rsmq.send_message("q", "x")
    ours = received(rsmq, vt=0)
    (seen,) = rsmq.peek_messages("q")
    assert seen.receipt == ours.receipt
    foreign_receive(db, id)
    (seen,) = rsmq.peek_messages("q")
    assert seen.receipt == "2"
    assert rsmq.delete_messages("q", [ours, seen]) == [False, True]


def test_the_record_of_a_delivery_is_deleted_with_its_message(
    rsmq: Rsmq, store: Store, db: redis.Redis
) -> None:
    rsmq.send_messages("q", "abcde")
    a, b, c, *_ = rsmq.receive_messages("q", 5, vt=0)
    assert db.hlen(RECEIPTS) == 6
    rsmq.delete_message("q", a.id)
    rsmq.delete_messages("q", [b])
    store.run(settle_ops.bury(KEYS, "q", c, "q-dead", "why"))
    assert rsmq.pop_message("q")
    assert db.hlen(RECEIPTS) == 2
    rsmq.receive_messages("q", 5)
    rsmq.purge_queue("q")
    assert not db.exists(RECEIPTS)
    rsmq.send_message("q", "x")
    received(rsmq)
    rsmq.delete_queue("q")
    assert not db.exists(RECEIPTS)


def test_records_expire_one_to_two_weeks_after_the_visibility_timeout(rsmq: Rsmq, db: Any) -> None:
    rsmq.send_messages("q", "ab")
    message = received(rsmq, vt=1_000_000)
    assert WEEK_S + 1_000_000 < db.ttl(RECEIPTS) <= 2 * WEEK_S + 1_000_000
    received(rsmq, vt=1)
    assert db.ttl(RECEIPTS) > WEEK_S + 1_000_000
    rsmq.change_message_visibility("q", message.id, 9_000_000, receipt=message.receipt)
    assert db.ttl(RECEIPTS) > WEEK_S + 9_000_000


@pytest.mark.parametrize("count", [1, 10])
def test_records_of_messages_that_foreign_clients_deleted_do_not_pile_up(
    rsmq: Rsmq, db: redis.Redis, count: int
) -> None:
    rsmq.send_messages("q", ["x"] * 1500)
    for _ in range(1500 // count):
        messages = rsmq.receive_messages("q", count)
        db.zrem(KEYS.messages("q"), *(m.id for m in messages))
        for message in messages:
            db.hdel(KEYS.data("q"), message.id, f"{message.id}:rc", f"{message.id}:fr")
    assert 0 < db.hlen(RECEIPTS) < 200


def test_the_highest_count_of_receives_has_a_receipt_too(rsmq: Rsmq, db: redis.Redis) -> None:
    for receive in (rsmq.receive_message, lambda queue: rsmq.receive_messages(queue, 2)[0]):
        id = rsmq.send_message("q", "x")
        db.hset(KEYS.data("q"), f"{id}:rc", 2**53 - 3)
        message = receive("q")
        assert message is not None
        assert message.rc == 2**53 - 2
        assert rsmq.delete_message("q", id, receipt=message.receipt)


def test_a_receipts_key_of_another_type_stops_a_receive_before_anything_is_written(
    rsmq: Rsmq, db: Any
) -> None:
    rsmq.send_messages("q", "ab")
    db.set(RECEIPTS, "mine")
    before = {key: db.dump(key) for key in db.scan_iter()}
    for receive in (rsmq.receive_message, rsmq.pop_message):
        with pytest.raises(Exception, match=r"WRONGTYPE|another type"):
            receive("q")
    with pytest.raises(Exception, match=r"WRONGTYPE|another type"):
        rsmq.receive_messages("q", 2)
    assert {key: db.dump(key) for key in db.scan_iter()} == before
