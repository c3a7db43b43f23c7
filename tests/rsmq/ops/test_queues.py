"""Operations on whole queues: the calls they make, and their decoded replies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import (
    InvalidFormat,
    InvalidValue,
    NothingToSet,
    QueueCorrupt,
    QueueExists,
    QueueNotFound,
)
from tambomq.rsmq import QueueAttributes
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.store.call import Call, Script
from tambomq.store.sync import Store

KEYS = Keys("ns")
OWN = ("ns:q", "ns:q:Q")
ATTRIBUTES = [b"30", b"0", b"65536", b"4", b"5", b"1645018248", b"1645018249", 3, 2, 1]


def script(call: Call[Any]) -> str:
    assert isinstance(call.verb, Script)
    return call.verb.name


def test_a_queue_is_created_by_one_call() -> None:
    call = queue_ops.create(KEYS, "q", vt=30, delay=0, maxsize=65536)
    assert (script(call), call.keys) == ("create", ("ns:QUEUES", "ns:q:Q"))
    assert call.args == ("q", 30, 0, 65536)
    call.decode(1)
    with pytest.raises(QueueExists):
        call.decode(0)


def test_a_queue_is_dropped_by_one_call() -> None:
    call = queue_ops.drop(KEYS, "q")
    assert (script(call), call.keys, call.args) == (
        "drop",
        ("ns:QUEUES", *OWN, "ns:q:receipts", "ns:q:bounds", "ns:q:bounds:sizes"),
        ("q",),
    )
    call.decode(1)
    with pytest.raises(QueueNotFound):
        call.decode(0)


def test_calls_that_are_not_idempotent_are_not_repeatable() -> None:
    assert not queue_ops.create(KEYS, "q", vt=0, delay=0, maxsize=-1).repeatable
    assert not queue_ops.drop(KEYS, "q").repeatable
    assert not queue_ops.purge(KEYS, "q").repeatable
    assert queue_ops.attributes(KEYS, "q").repeatable
    assert queue_ops.list_queues(KEYS).repeatable


def test_a_purge_keeps_settings_and_counters() -> None:
    call = queue_ops.purge(KEYS, "q")
    assert call.args == (
        *("vt", "delay", "maxsize", "created", "modified"),
        *("totalsent", "totalrecv"),
    )
    assert call.decode(0) == 0
    with pytest.raises(QueueNotFound):
        call.decode(None)


@given(st.lists(st.binary()))
def test_names_of_any_bytes_are_listed_in_order(found: list[bytes]) -> None:
    names = queue_ops.list_queues(KEYS).decode(found)
    assert names == sorted(names)
    assert len(names) == len(found)


def test_attributes_are_read_as_numbers() -> None:
    assert queue_ops.attributes(KEYS, "q").decode(ATTRIBUTES) == QueueAttributes(
        vt=30.0,
        delay=0.0,
        maxsize=65536,
        totalrecv=4,
        totalsent=5,
        created=1645018248,
        modified=1645018249,
        msgs=3,
        hiddenmsgs=2,
    )


@pytest.mark.parametrize("value", [b"abc", b"nan", b"inf", b"-inf", b"0x10", b"1e999"])
@pytest.mark.parametrize("place", range(2, 7))
def test_an_attribute_that_is_not_a_number_is_damage(value: bytes, place: int) -> None:
    reply = [*ATTRIBUTES[:place], value, *ATTRIBUTES[place + 1 :]]
    with pytest.raises(QueueCorrupt, match="'q' is damaged"):
        queue_ops.attributes(KEYS, "q").decode(reply)


@given(st.lists(st.binary() | st.none(), min_size=7, max_size=7))
def test_no_stored_bytes_crash_the_attributes(values: list[bytes | None]) -> None:
    try:
        found = queue_ops.attributes(KEYS, "q").decode([*values, 0, 0, 0])
    except QueueCorrupt:
        return
    assert isinstance(found.maxsize, int)


def test_settings_are_changed_and_read_in_one_round_trip() -> None:
    plan = queue_ops.set_attributes(KEYS, "q", vt=5, delay=None, maxsize=-1)
    change, read = next(plan)
    assert (script(change), change.keys[0]) == ("set_attributes", "ns:q:Q")
    assert change.keys[1].startswith("ns:q:set:")
    assert change.args == (queue_ops.CHANGE_TTL_S, "vt", 5, "maxsize", -1)
    assert script(read) == "attributes"
    with pytest.raises(StopIteration) as end:
        plan.send([1, "attributes"])
    assert end.value.value == "attributes"


def test_names_and_numbers_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(NothingToSet) as caught:
        queue_ops.set_attributes(KEYS, "q", vt=None, delay=None, maxsize=None)
    assert caught.value.code == "noAttributeSupplied"
    with pytest.raises(InvalidValue):
        queue_ops.set_attributes(KEYS, "q", vt=1, delay=-1, maxsize=None)
    with pytest.raises(InvalidValue):
        queue_ops.create(KEYS, "q", vt=1, delay=1, maxsize=7)
    for make in (queue_ops.drop, queue_ops.purge, queue_ops.attributes):
        with pytest.raises(InvalidFormat):
            make(KEYS, "QUEUES")


def test_a_repeated_change_does_not_undo_a_later_one(store: Store) -> None:
    store.run(queue_ops.create(KEYS, "q", vt=1, delay=1, maxsize=2048))
    plan = queue_ops.set_attributes(KEYS, "q", vt=10, delay=None, maxsize=None)
    # A client repeats the call if it has lost the reply.
    calls = [*next(plan)]
    assert store.run_all(calls)[-1].vt == 10
    store.follow(queue_ops.set_attributes(KEYS, "q", vt=20, delay=None, maxsize=None))
    assert store.run_all(calls)[-1].vt == 20
    store.follow(queue_ops.set_attributes(KEYS, "q", vt=10, delay=None, maxsize=None))
    assert store.run(queue_ops.attributes(KEYS, "q")).vt == 10
