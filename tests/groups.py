"""Groups of tests that must run in one process, since they share something costly to start.

pytest-xdist gives a group to one of its processes as a whole, the one with Spark first
(`tests.ci`) and then the largest.
"""

from __future__ import annotations

import pytest

SPARK = "spark"
_SHARED = {"spark": SPARK, "formed_cluster": "cluster"}
"""By session fixture: the group of its tests. Where a test has both, the first."""


def group_of(item: pytest.Item) -> str:
    """The group of *item*, or nothing if any process may run it.

    Who uses a fixture with the scope of its module is grouped with all others that do.
    """
    if not isinstance(item, pytest.Function):
        return ""
    for fixture, group in _SHARED.items():
        if fixture in item.fixturenames:
            return group
    known = item._fixtureinfo.name2fixturedefs
    shared = any(
        known[name][-1].scope == "module"
        for name in item.fixturenames
        if name in known and not name.startswith("_")
    )
    return item.path.parent.name + "." + item.path.stem if shared else ""
