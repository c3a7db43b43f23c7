"""Runs plans without a server: the calls they make, and their result for given outcomes."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from tambomq.store.call import Call, Plan, Script

T = TypeVar("T")


def script(call: Call[Any]) -> str:
    assert isinstance(call.verb, Script)
    return call.verb.name


def first_round_trip(plan: Plan[Any]) -> list[Call[Any]]:
    return list(next(plan))


def run_plan(plan: Plan[T], *round_trips: list[Any]) -> T:
    """Return the result of *plan* when its round trips have these outcomes."""
    next(plan)
    for outcomes in round_trips[:-1]:
        plan.send(outcomes)
    with pytest.raises(StopIteration) as end:
        plan.send(round_trips[-1])
    value: T = end.value.value
    return value
