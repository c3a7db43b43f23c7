"""Broken builds: what each of them breaks is found in its history, and nothing without it.

The seed of the commit chooses some of them; ``make chaos ARGS=--builds`` tries all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.builds.all import BUILDS
from tests.chaos.builds.build import SRC, Build, Trial
from tests.spark.sampling import some

LEAST = 20
SAMPLE = 3

_CHOSEN = some("builds", BUILDS, SAMPLE)
_TRIALS = {build.trial.name: build.trial for build in _CHOSEN}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("build", _CHOSEN, ids=lambda build: build.name)
def test_what_a_build_breaks_is_found(build: Build, tmp_path: Path) -> None:
    verdict = build.try_out(tmp_path)
    assert build.is_found(verdict), (verdict.kinds, verdict.counts)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trial", [*_TRIALS.values()], ids=lambda trial: trial.name)
def test_nothing_is_found_in_the_same_trial_of_this_build(trial: Trial, tmp_path: Path) -> None:
    assert trial.run(tmp_path).violations == ()


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.name)
def test_a_build_differs_in_one_place(build: Build) -> None:
    assert build.planted() != (SRC / "tambomq" / build.file).read_text("utf-8")


def test_builds_are_many_and_their_names_are_unique() -> None:
    assert len({build.name for build in BUILDS}) == len(BUILDS) >= LEAST
