"""Failovers under load: with durable sends nothing that was confirmed is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.failovers.run import fail_over_often

pytestmark = pytest.mark.slow


def test_no_send_that_the_replica_confirmed_is_lost_in_failovers(tmp_path: Path) -> None:
    result = fail_over_often(2, rate=100, durable="replicas:1", seed=4, folder=tmp_path)
    assert [each.kind for each in result.failovers] == ["kill", "kill"]
    assert all(each.confirmed and each.stored for each in result.sent)
    last = max(time for each in result.sent for time in each.confirmed.values())
    assert last > result.failovers[-1].promoted
    assert not result.broken, "\n".join(result.lines)
