"""Tries broken builds and prints a table; arguments are parts of their names, none means all."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.chaos.builds.all import BUILDS
from tests.chaos.builds.build import Build, Trial
from tests.chaos.builds.plain import PLAIN
from tests.chaos.checker import Verdict
from tests.chaos.report import markdown

WITHIN_S: Final = 60.0
"""A broken build is to be found in this time, if the machine has nothing else to do."""
UNBROKEN: Final = "(none)"
_HEADER: Final = ("build", "protocol", "nemesis", "seed", "seconds", "verdict")
_LOST: Final = "lost"


class Table:
    """The rows of the table, each printed as progress when it is known."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []
        self.late = 0

    def add(self, name: str, trial: Trial, attempt: Callable[[Path], Verdict]) -> Verdict:
        """Make an attempt in a folder of its own, and add its row; return its verdict."""
        with tempfile.TemporaryDirectory(prefix="tambo-build-") as folder:
            began = time.monotonic()
            verdict = attempt(Path(folder))
            took_s = time.monotonic() - began
        self.late += took_s > WITHIN_S
        found = ", ".join(f"{count} {kind}" for kind, count in verdict.kinds.items())
        row = (name, trial.subject.name, trial.nemesis.name, str(trial.seed), f"{took_s:.0f}")
        self.rows.append((*row, found or "no violation"))
        print(*self.rows[-1], sep="  ", file=sys.stderr, flush=True)  # noqa: T201
        return verdict


def main(words: Sequence[str] = ()) -> int:
    """Try the builds whose name has one of *words*, or all; return the exit code."""
    table = Table()
    builds = [each for each in BUILDS if not words or any(_fits(each, word) for word in words)]
    plain = {
        name: trial
        for name, trial in PLAIN.items()
        if not words or any(word in (name, trial.subject.name) for word in words)
    }
    missed = [
        *(each.name for each in builds if not each.is_found(_broken(table, each))),
        *(name for name, trial in plain.items() if _LOST not in _plain(table, name, trial)),
    ]
    late = table.late
    trials = {build.trial.name: build.trial for build in builds}
    wrong = [
        name for name, trial in trials.items() if table.add(UNBROKEN, trial, trial.run).violations
    ]
    _say(*markdown(_HEADER, table.rows), "")
    tried = len(builds) + len(plain)
    _say(f"{tried - len(missed)} of {tried} found, {tried - late} within {WITHIN_S:.0f} s")
    _say(*(f"NOT FOUND: {name}" for name in missed))
    _say(f"{len(trials) - len(wrong)} of {len(trials)} trials pass without the change")
    _say(*(f"WRONG: {name}" for name in wrong))
    return 1 if missed or wrong else 0


def _fits(build: Build, word: str) -> bool:
    return word in (build.trial.subject.name, build.trial.nemesis.name) or word in build.name


def _broken(table: Table, build: Build) -> Verdict:
    return table.add(build.name, build.trial, build.try_out)


def _plain(table: Table, name: str, trial: Trial) -> Iterable[str]:
    return table.add(name, trial, trial.run).kinds


def _say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)  # noqa: T201  (what was asked for)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
