"""Plain Redis lists and pub/sub: the checker finds what they lose, and only with a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.builds.build import Trial
from tests.chaos.builds.plain import PLAIN
from tests.chaos.run import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
each_queue = pytest.mark.parametrize("trial", PLAIN.values(), ids=lambda each: each.subject.name)


@each_queue
def test_messages_of_a_killed_worker_are_found_lost(trial: Trial, tmp_path: Path) -> None:
    verdict = trial.run(tmp_path)
    assert verdict.counts["did kill-worker"]
    assert verdict.kinds.get("lost"), verdict.counts


@each_queue
def test_nothing_is_lost_while_nothing_fails(trial: Trial, tmp_path: Path) -> None:
    verdict = run(trial.subject, [], seconds=3, seed=7, folder=tmp_path)
    assert verdict.violations == ()
    assert verdict.counts["completed"]
