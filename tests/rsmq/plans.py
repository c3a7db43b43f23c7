"""Plans without a server: what they would send, and what they make of the answers."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from tambomq.store.call import Call, Plan, Script

T = TypeVar("T")


def script(call: Call[Any]) -> str:
    assert isinstance(call.verb, Script)
    return call.verb.name


def first_trip(plan: Plan[Any]) -> list[Call[Any]]:
    return list(next(plan))


def told(plan: Plan[T], *trips: list[Any]) -> T:
    """What *plan* comes to when its trips have these outcomes."""
    next(plan)
    for outcomes in trips[:-1]:
        plan.send(outcomes)
    with pytest.raises(StopIteration) as end:
        plan.send(trips[-1])
    value: T = end.value.value
    return value
