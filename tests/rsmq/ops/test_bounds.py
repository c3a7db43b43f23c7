"""Bounds as calls: what is checked before anything is sent, and how replies are decoded."""

from __future__ import annotations

import pytest

from tambomq.errors import InvalidFormat, InvalidValue, NothingToSet, QueueCorrupt, QueueNotFound
from tambomq.rsmq import QueueBounds
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import bounds as bounds_ops
from tests.rsmq.plans import first_round_trip

KEYS = Keys("ns")
NOTHING = {
    "max_messages": None,
    "max_bytes": None,
    "message_ttl_s": None,
    "overflow": None,
    "dead": None,
}


def test_the_bounds_of_a_queue_are_one_hash() -> None:
    call = bounds_ops.read(KEYS, "q")
    assert (call.verb, call.keys, call.repeatable) == ("HGETALL", ("ns:q:bounds",), True)
    assert call.decode([]) == QueueBounds()
    assert call.decode([b"ttl_ms", b"1500", b"dead", b"graves", b"refused", b"7"]) == QueueBounds(
        message_ttl_s=1.5, dead="graves", refused=7
    )
    with pytest.raises(QueueCorrupt, match="its bounds"):
        call.decode({b"max_bytes": b"many"})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({}, NothingToSet),
        ({"max_messages": 0}, InvalidValue),
        ({"message_ttl_s": 0}, InvalidValue),
        ({"overflow": "trim"}, InvalidValue),
    ],
)
def test_bounds_are_checked_before_anything_is_sent(
    change: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        next(bounds_ops.set_bounds(KEYS, "q", **{**NOTHING, **change}))  # type: ignore[arg-type]


def test_a_queue_is_not_its_own_dead_letter_queue() -> None:
    plan = bounds_ops.set_bounds(KEYS, "q", **{**NOTHING, "max_bytes": 1, "dead": "q"})  # type: ignore[arg-type]
    next(plan)
    with pytest.raises(InvalidFormat):
        plan.send([""])


def test_a_sweep_goes_on_until_a_script_says_that_there_are_no_more() -> None:
    plan = bounds_ops.sweep(KEYS, "q")
    (call,) = next(plan)
    assert call.keys == ("ns:q", "ns:q:Q", "ns:q:receipts", "ns:q:bounds")
    plan.send([call.decode([20, 1])])
    with pytest.raises(StopIteration) as ended:
        plan.send([call.decode([3, 0])])
    assert ended.value.value == 23
    (again,) = first_round_trip(bounds_ops.sweep(KEYS, "q"))
    with pytest.raises(QueueNotFound):
        again.decode(None)
