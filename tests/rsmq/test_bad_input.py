"""Invalid arguments: a clear error, and nothing is changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tambomq.errors import (
    InvalidBody,
    InvalidFormat,
    InvalidValue,
    LocalProtocolError,
    MessageTooLong,
    NothingToSet,
    QueueExists,
    QueueNotFound,
)
from tambomq.rsmq import AsyncRsmq, Rsmq
from tests.rsmq.operations import BY_QUEUE, ID
from tests.rsmq.stored import at_rest

NAMES: list[Any] = ["", "x" * 161, "a:b", "a b", "QUEUES", "é", "a\n", None, b"q", 7]

SECONDS: list[Any] = [-1, 10_000_000, math.nan, math.inf, -math.inf, True, "1", b"1", [1]]


@pytest.fixture
def untouched(client: Rsmq, db: redis.Redis) -> Callable[[], bool]:
    """Whether queue ``q`` with one message is still as the test found it."""
    client.create_queue("q", maxsize=1024)
    client.send_message("q", "x")
    before = at_rest(db)
    return lambda: at_rest(db) == before


@pytest.mark.parametrize("operation", BY_QUEUE)
def test_an_illegal_name_is_refused_by_every_operation(
    client: Rsmq, db: redis.Redis, operation: str
) -> None:
    for name in NAMES:
        with pytest.raises(InvalidFormat, match="queue name"):
            BY_QUEUE[operation](client, name)
    assert db.dbsize() == 0


def test_an_illegal_namespace_is_refused_before_connecting() -> None:
    for make in (Rsmq, AsyncRsmq):
        with pytest.raises(InvalidFormat, match="namespace"):
            make("redis://127.0.0.1:1", ns="a b")


@pytest.mark.parametrize("value", SECONDS)
def test_seconds_out_of_range_are_refused(
    client: Rsmq, untouched: Callable[[], bool], value: Any
) -> None:
    for attempt in (
        lambda: client.create_queue("new", vt=value),
        lambda: client.create_queue("new", delay=value),
        lambda: client.set_queue_attributes("q", vt=value),
        lambda: client.set_queue_attributes("q", vt=1, delay=value),
        lambda: client.send_message("q", "", delay=value),
        lambda: client.send_messages("q", [""], delay=value),
        lambda: client.receive_message("q", vt=value),
        lambda: client.receive_messages("q", 10, vt=value, wait=1),
        lambda: client.change_message_visibility("q", ID, value),
    ):
        with pytest.raises(InvalidValue):
            attempt()
    assert untouched()


@pytest.mark.parametrize("value", [0, 1023, 65537, -2, 2048.0, math.nan, True, "2048", [1]])
def test_a_maxsize_out_of_range_is_refused(
    client: Rsmq, untouched: Callable[[], bool], value: Any
) -> None:
    with pytest.raises(InvalidValue):
        client.create_queue("new", maxsize=value)
    with pytest.raises(InvalidValue):
        client.set_queue_attributes("q", vt=1, maxsize=value)
    assert untouched()


@pytest.mark.parametrize("value", [0, -1, 1.0, math.inf, True, "1", None, 10**12, 10**30])
def test_a_count_out_of_range_is_refused(
    client: Rsmq, untouched: Callable[[], bool], value: Any
) -> None:
    with pytest.raises(InvalidValue):
        client.receive_messages("q", value)
    with pytest.raises(InvalidValue):
        client.peek_messages("q", value)
    assert untouched()


@pytest.mark.parametrize("id", ["", "x" * 31, "x" * 33, "x" * 31 + "-", None, b"x" * 32, 7])
def test_an_illegal_id_is_refused(client: Rsmq, untouched: Callable[[], bool], id: Any) -> None:
    for attempt in (
        lambda: client.delete_message("q", id),
        lambda: client.delete_messages("q", [ID, id]),
        lambda: client.change_message_visibility("q", id, 1),
    ):
        with pytest.raises(InvalidFormat, match="message id"):
            attempt()
    assert untouched()


@pytest.mark.parametrize("receipt", [1, "", 1.0, True, b"1", object()])
def test_an_illegal_receipt_is_refused(
    client: Rsmq, untouched: Callable[[], bool], receipt: Any
) -> None:
    with pytest.raises(InvalidValue, match="receipt must be"):
        client.delete_message("q", ID, receipt=receipt)
    with pytest.raises(InvalidValue, match="receipt must be"):
        client.change_message_visibility("q", ID, 1, receipt=receipt)
    assert untouched()


@pytest.mark.parametrize("body", [None, 7, 1.5, True, ["x"], {}, "\ud800"])
def test_an_illegal_body_is_refused(client: Rsmq, untouched: Callable[[], bool], body: Any) -> None:
    with pytest.raises(InvalidBody):
        client.send_message("q", body)
    with pytest.raises(InvalidBody):
        client.send_messages("q", ["x", body])
    assert untouched()


def test_setting_no_attribute_is_refused(client: Rsmq, untouched: Callable[[], bool]) -> None:
    with pytest.raises(NothingToSet):
        client.set_queue_attributes("q")
    assert untouched()


def test_the_length_of_a_message_is_counted_in_bytes(
    client: Rsmq, untouched: Callable[[], bool]
) -> None:
    with pytest.raises(MessageTooLong) as caught:
        client.send_message("q", "é" * 513)
    assert (caught.value.size, caught.value.maxsize, caught.value.queue) == (1026, 1024, "q")
    assert untouched()
    client.send_message("q", "é" * 512)


def test_a_queue_without_a_limit_takes_any_length(client: Rsmq) -> None:
    client.create_queue("q", maxsize=-1)
    client.send_message("q", b"x" * 5_000_000)
    popped = client.pop_message("q")
    assert popped is not None
    assert len(popped.body) == 5_000_000


def test_errors_carry_the_names_of_the_specification(client: Rsmq) -> None:
    client.create_queue("q", maxsize=1024)
    for attempt, code in (
        (lambda: client.create_queue("q"), "queueExists"),
        (lambda: client.delete_queue("none"), "queueNotFound"),
        (lambda: client.send_message("q", "x" * 1025), "messageTooLong"),
        (lambda: client.send_message("q", None), "messageNotString"),  # type: ignore[arg-type]
        (lambda: client.send_message("", "x"), "missingParameter"),
        (lambda: client.send_message("a b", "x"), "invalidFormat"),
        (lambda: client.receive_message("q", vt=-1), "invalidValue"),
        (lambda: client.set_queue_attributes("q"), "noAttributeSupplied"),
    ):
        with pytest.raises(
            (LocalProtocolError, QueueExists, QueueNotFound, MessageTooLong)
        ) as caught:
            attempt()
        assert caught.value.code == code


def test_a_queue_deleted_between_two_calls_is_not_found(client: Rsmq) -> None:
    client.create_queue("q")
    id = client.send_message("q", "x")
    received = client.receive_messages("q", 1)
    client.delete_queue("q")
    with pytest.raises(QueueNotFound):
        client.delete_message("q", id)
    with pytest.raises(QueueNotFound):
        client.delete_messages("q", received)
    with pytest.raises(QueueNotFound):
        client.send_message("q", "y")
    assert client.list_queues() == []
