"""Short runs of fixed seeds. What a long run of `make chaos` has found once is here for ever."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos.nemeses import NEMESES
from tests.chaos.plan import Episode
from tests.chaos.report import repeat, shown
from tests.chaos.run import run
from tests.chaos.subjects import SUBJECTS

SECONDS = 7


@dataclass(frozen=True, slots=True)
class Seed:
    """One run."""

    protocol: str
    nemeses: tuple[str, ...]
    seed: int

    def __str__(self) -> str:
        return f"{self.protocol}-{'+'.join(self.nemeses)}-{self.seed}"


SEEDS = (
    Seed("rsmq", ("kill-worker", "partition", "kill-redis"), 1),
    Seed("chasqui", ("stop-worker-long", "cut", "disk-full"), 2),
    Seed("chasqui", ("kill-worker", "clock-forward", "flushall"), 3),
    Seed("gomq", ("kill-server", "loss", "kill-worker"), 4),
    Seed("kqueue", ("kill-server", "cut", "stop-worker-long"), 5),
    Seed("jobs", ("kill-worker", "silent", "readonly"), 6),
    Seed("pipeline", ("kill-worker", "partition", "kill-redis"), 7),
    Seed("pipeline", ("kill-sender", "silent", "disk-full"), 8),
    Seed("spark", ("kill-worker", "partition-replies"), 9),
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fixed", SEEDS, ids=str)
def test_no_promise_breaks(fixed: Seed, tmp_path: Path) -> None:
    nemeses = tuple(NEMESES[name] for name in fixed.nemeses)
    if reasons := [reason for each in nemeses if (reason := each.unavailable())]:
        pytest.skip(reasons[0])
    episode = Episode(SUBJECTS[fixed.protocol], nemeses, fixed.seed)
    verdict = run(
        episode.subject, nemeses, seconds=SECONDS, seed=fixed.seed, folder=tmp_path, pause_s=1
    )
    lines = [*shown(verdict.violations), repeat(episode, seconds=SECONDS)]
    assert not verdict.violations, "\n".join(lines)
    assert verdict.counts["confirmed"] > 0
