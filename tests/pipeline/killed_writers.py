"""Kills a writer of a lake by SIGKILL at each of its system calls; prints how many those were.

A process of its own, since it forks: ``python -m tests.pipeline.killed_writers batch DIRECTORY``.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

from tambomq.pipeline.lake.lake import Lake
from tests.pipeline.disk_faults import Killed, injected
from tests.pipeline.lake_work import BATCHES, is_whole, make, recovers

POINTS = {"batch": 30, "compact": 30}
"""At least so many there are."""


def _nothing(fd: object) -> None:
    del fd


def killed(path: Path, step: int | None, at: int) -> bool:
    """Make *step* in a process that is killed at call *at*; return whether it came so far."""
    child = os.fork()
    if not child:
        try:
            with injected(at, "SIGKILL"):
                make(Lake.open(path), step)
        except Killed:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def main(what: str, home: Path) -> int:
    """Return how many calls were the last of a process."""
    # It may be the last call like any other, but there is no power cut here.
    os.fsync = _nothing
    base, trial = Lake.make(home / "lake").path, home / "trial"
    for number in range(BATCHES):
        make(Lake.open(base), number)
    step = BATCHES if what == "batch" else None
    at = 0
    while True:
        shutil.copytree(base, trial)
        if not killed(trial, step, at):
            is_whole(trial, BATCHES + (step is not None))
            return at
        recovers(trial, step, BATCHES, thoroughly=True)
        shutil.rmtree(trial)
        at += 1


if __name__ == "__main__":
    sys.stdout.write(f"{main(sys.argv[1], Path(sys.argv[2]))}\n")
