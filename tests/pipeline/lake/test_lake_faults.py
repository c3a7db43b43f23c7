"""A lake counts the files it has, and all rows once, whichever system call of its writers fails."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tambomq.errors import LakeError
from tambomq.pipeline.lake import compact as compacting
from tambomq.pipeline.lake.lake import Lake
from tests.pipeline.disk_faults import KINDS, Killed, injected
from tests.pipeline.lake_work import BATCHES, BLOCKS, is_whole, make, recovers
from tests.spark import sampling


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next compaction delete replaced files at once, not after an hour."""
    monkeypatch.setattr(compacting, "KEPT_MS", 0)
    # It may fail like any call, but there is no power cut here.
    monkeypatch.setattr(os, "fsync", lambda _: None)


def steps() -> Iterator[int | None]:
    """Yield numbers of batches, and None for compactions."""
    for number in range(BLOCKS * BATCHES):
        yield number
        if number % BATCHES == BATCHES - 1:
            yield None


def work(path: Path, step: int | None, at: int = -1, kind: str = "EIO") -> list[bool]:
    """Make a step whose call of number *at* goes wrong; return which of its calls write."""
    lake = Lake.open(path, writable=True)
    with injected(at, kind) as faults:
        make(lake, step)
    return faults.calls


def trials(base: Path, step: int | None, copy: Path) -> list[tuple[int, str]]:
    """Return all points at which *step* can go wrong, and how."""
    calls = work(Path(shutil.copytree(base, copy)), step)
    shutil.rmtree(copy)
    return [
        (at, name)
        for at, writes in enumerate(calls)
        for name, kind in KINDS.items()
        if writes or not kind.writes_only
    ]


def matrix(home: Path, wanted: Container[int], one_in: int) -> int:
    """Interrupt one in *one_in* calls of the *wanted* steps; return how many were."""
    chosen, tried, done = random.Random(7), 0, 0
    base, trial = Lake.make(home / "lake").path, home / "trial"
    for place, step in enumerate(steps()):
        for at, kind in trials(base, step, trial) if place in wanted else ():
            if chosen.randrange(one_in):
                continue
            shutil.copytree(base, trial)
            try:
                with suppress(OSError, LakeError, KeyboardInterrupt, Killed):
                    work(trial, step, at, kind)
                recovers(trial, step, done, thoroughly=tried % 10 == 0)
            except BaseException as error:
                error.add_note(f"step {place}, call {at}, {kind}")
                raise
            shutil.rmtree(trial)
            tried += 1
        make(Lake.open(base), step)
        done += step is not None
    is_whole(base, BLOCKS * BATCHES)
    return tried


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is such a file system."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as found:
        yield Path(found)


def test_a_sample_of_all_system_calls_may_fail(home: Path) -> None:
    # First ones, compactions, and those that write the whole.
    assert matrix(home, (0, 9, 20, 21, 39, 49), 80) > 10


@pytest.mark.slow
# A block of the whole, drawn by the commit; `make matrix` runs all of them.
@pytest.mark.parametrize("block", sampling.some("lake faults", range(BLOCKS), 1))
def test_every_system_call_of_45_commits_and_5_compactions_may_fail(home: Path, block: int) -> None:
    size = BATCHES + 1
    assert matrix(home, range(block * size, (block + 1) * size), 1) > 1000
