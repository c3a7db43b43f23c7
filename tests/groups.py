"""Groups of tests that must run in one process, since they share something costly to start.

pytest-xdist gives a group to one of its processes as a whole. `in_order` says which comes first:
what takes longest, so that no process is left alone with it at the end.
"""

from __future__ import annotations

from collections import Counter

import pytest

SPARK = "spark"
BESIDE_SPARK = "beside-spark"
"""Tests that start Java and compare with the session of all tests: they mostly wait, and would
keep those waiting that only need the session. So they have a session of their own."""
_SHARED = {"spark": SPARK, "formed_cluster": "cluster"}
"""By session fixture: the group of its tests. Where a test has both, the first."""
_FIRST = (SPARK, BESIDE_SPARK)


def group_of(item: pytest.Item) -> str:
    """The group of *item*, or nothing if any process may run it.

    Who uses a fixture with the scope of its module is grouped with all others that do.
    """
    if not isinstance(item, pytest.Function):
        return ""
    for fixture, group in _SHARED.items():
        if fixture in item.fixturenames:
            beside = group == SPARK and item.get_closest_marker("jvm")
            return BESIDE_SPARK if beside else group
    known = item._fixtureinfo.name2fixturedefs
    shared = any(
        known[name][-1].scope == "module"
        for name in item.fixturenames
        if name in known and not name.startswith("_")
    )
    return item.path.parent.name + "." + item.path.stem if shared else ""


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return *items* with the groups of Spark first, then what may last longest, then the largest.

    How long something may last is the time limit of its tests with `slow` or `jvm`.
    """
    sizes = Counter(map(unit_of, items))
    limits: dict[str, float] = {}
    for item in items:
        unit = unit_of(item)
        limits[unit] = max(limits.get(unit, 0), _limit_s(item))

    def place(item: pytest.Item) -> tuple[int, float, int]:
        unit = unit_of(item)
        first = _FIRST.index(unit) if unit in _FIRST else len(_FIRST)
        return first, -limits[unit], -sizes[unit]

    return sorted(items, key=place)


def unit_of(item: pytest.Item) -> str:
    """The group of *item* as it is marked, or its own name."""
    marker = item.get_closest_marker("xdist_group")
    return marker.args[0] if marker else item.nodeid


def _limit_s(item: pytest.Item) -> float:
    if not any(map(item.get_closest_marker, ("slow", "jvm"))):
        return 0
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker else item.config.getini("timeout") or 1)
