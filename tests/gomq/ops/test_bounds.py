"""Bounds of a main queue, as calls."""

from __future__ import annotations

import pytest

from tambomq.gomq.ops import bounds as bounds_ops


def test_the_memory_of_a_main_queue_is_that_of_its_list() -> None:
    call = bounds_ops.backlog_bytes("k")
    assert call.parts == ("MEMORY", "USAGE", "QUEUE_k", "SAMPLES", 0)
    assert (call.decode(None), call.decode(700)) == (0, 700)
    assert call.repeatable


def test_expiry_goes_on_until_a_script_says_that_there_are_no_more() -> None:
    plan = bounds_ops.expire("k", "k-dead", 60.0)
    (call,) = next(plan)
    assert call.keys == ("QUEUE_k", "QUEUE_k-dead")
    assert call.args[:2] == (60.0, bounds_ops.EXPIRE_CHUNK)
    assert call.args[2] == "{tambo:gomq:k}:journal"
    plan.send([call.decode([40, 1])])
    with pytest.raises(StopIteration) as ended:
        plan.send([call.decode([2, 0])])
    assert ended.value.value == 42
