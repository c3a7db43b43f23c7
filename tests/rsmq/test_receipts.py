"""Receipts: only the latest delivery may settle a message."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.rsmq import Message, Rsmq


def received(client: Rsmq, *, vt: float | None = None) -> Message:
    message = client.receive_message("q", vt=vt)
    assert message is not None
    return message


@pytest.fixture
def held(client: Rsmq) -> Message:
    """A received message whose visibility timeout is over."""
    client.create_queue("q")
    client.send_message("q", "x")
    return received(client, vt=0)


def test_a_stale_consumer_cannot_settle_a_message_that_another_received(
    client: Rsmq, held: Message
) -> None:
    other = received(client)
    assert client.delete_message("q", held.id, receipt=held.receipt) is False
    assert client.change_message_visibility("q", held.id, 0, receipt=held.receipt) is False
    assert client.delete_messages("q", [held]) == [False]
    assert client.receive_message("q") is None
    assert client.delete_message("q", other.id, receipt=other.receipt) is True


def test_a_receipt_is_void_after_a_failover_that_lost_its_receive(
    client: Rsmq, db: redis.Redis
) -> None:
    client.create_queue("q")
    client.send_message("q", "x")
    replicated: Any = {key: db.dump(key) for key in db.scan_iter()}
    stale = received(client)
    db.flushdb()
    for key, value in replicated.items():
        db.restore(key, 0, value)
    other = received(client)
    assert (other.id, other.rc) == (stale.id, stale.rc)
    assert client.delete_message("q", stale.id, receipt=stale.receipt) is False
    assert client.change_message_visibility("q", stale.id, 0, receipt=stale.receipt) is False
    assert client.delete_message("q", other.id, receipt=other.receipt) is True


def test_a_receive_by_a_client_without_receipts_voids_a_receipt(
    client: Rsmq, db: redis.Redis, held: Message
) -> None:
    # All that such a client changes: the count, and when the message is visible.
    db.hincrby("rsmq:q:Q", f"{held.id}:rc", 1)
    assert client.delete_message("q", held.id, receipt=held.receipt) is False
    assert client.change_message_visibility("q", held.id, 0, receipt=held.receipt) is False
    assert client.delete_messages("q", [held]) == [False]


def test_an_expired_consumer_may_settle_a_message_until_it_is_received_again(
    client: Rsmq, held: Message
) -> None:
    assert client.change_message_visibility("q", held.id, 100, receipt=held.receipt) is True
    assert client.receive_message("q") is None
    assert client.delete_message("q", held.id, receipt=held.receipt) is True


def test_a_change_of_visibility_voids_no_receipt(client: Rsmq, held: Message) -> None:
    for vt in (100, 0, 100):
        assert client.change_message_visibility("q", held.id, vt, receipt=held.receipt) is True
    assert client.delete_messages("q", [held]) == [True]


def test_an_id_without_a_receipt_settles_unconditionally(client: Rsmq, held: Message) -> None:
    received(client)
    assert client.change_message_visibility("q", held.id, 0) is True
    received(client)
    assert client.delete_messages("q", [held.id]) == [True]


def test_a_receipt_of_a_deleted_message_settles_nothing(client: Rsmq, held: Message) -> None:
    client.purge_queue("q")
    assert client.delete_message("q", held.id, receipt=held.receipt) is False
    assert client.change_message_visibility("q", held.id, 0, receipt=held.receipt) is False


def test_a_peeked_receipt_deletes_a_message_until_it_is_received(client: Rsmq) -> None:
    client.create_queue("q")
    client.send_messages("q", "ab")
    a, b = client.peek_messages("q")
    assert (a.receipt, b.receipt) == ("0", "0")
    assert received(client).id == a.id
    assert client.change_message_visibility("q", b.id, 0, receipt=b.receipt) is True
    assert client.delete_messages("q", [a, b]) == [False, True]


def test_a_batch_delete_leaves_messages_whose_receipt_is_void(client: Rsmq) -> None:
    client.create_queue("q")
    client.send_messages("q", "abc")
    stale = client.receive_messages("q", 3, vt=0)
    fresh = client.receive_messages("q", 2)
    assert {m.id for m in fresh} < {m.id for m in stale}
    deleted = client.delete_messages("q", stale)
    assert [m.id for m, flag in zip(stale, deleted, strict=True) if not flag] == sorted(
        m.id for m in fresh
    )
    assert client.delete_messages("q", fresh) == [True, True]
