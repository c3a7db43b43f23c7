"""The report of a chaos run: what was done, what came of it, and how to do it again."""

from __future__ import annotations

import shlex
import subprocess
import sys

from tests.chaos.checker import Verdict, Violation
from tests.chaos.history import Event
from tests.chaos.member import ROOT
from tests.chaos.nemeses import NEMESES
from tests.chaos.plan import Episode
from tests.chaos.report import VIOLATIONS_SHOWN, Report, repeat, shown
from tests.chaos.subjects import SUBJECTS

EVENT = Event(1.0, "worker-1.1", "run", "invoke", "a", 1)
EPISODE = Episode(SUBJECTS["rsmq"], (NEMESES["cut"], NEMESES["oom"]), 7)
COUNTS = {"confirmed": 1200, "completed again": 2, "did cut": 3, "did oom": 1, "lost, excused": 0}


def test_an_episode_counts_for_each_of_its_faults() -> None:
    report = Report(7)
    report.add(EPISODE, Verdict((), COUNTS))
    report.add(EPISODE, Verdict((), COUNTS))
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in report.table[2:]]
    assert rows == [
        ["rsmq", "cut", "6", "2", "2,400", "0", "4", "ok"],
        ["rsmq", "oom", "2", "2", "2,400", "0", "4", "ok"],
    ]
    assert report.json["violations"] == []


def test_the_matrix_has_a_line_for_each_fault_and_a_column_for_each_protocol() -> None:
    report = Report(7)
    report.add(EPISODE, Verdict((), COUNTS))
    report.add(Episode(SUBJECTS["chasqui"], (NEMESES["cut"],), 7), Verdict((), COUNTS))
    lines = [" ".join(line.split()) for line in report.matrix]
    assert "| fault | rsmq | chasqui |" in lines
    assert "| cut | ok: 3×, 1,200 | ok: 3×, 1,200 |" in lines
    assert "| oom | ok: 1×, 1,200 | |" in lines


def test_a_run_without_a_confirmed_message_shows_nothing() -> None:
    report = Report(7)
    report.add(EPISODE, Verdict((), COUNTS | {"confirmed": 0}))
    assert {cell.verdict for cell in report.cells.values()} == {"nothing shown"}


def test_a_violation_is_in_the_verdict_of_each_fault_that_was_there() -> None:
    report = Report(7)
    report.add(EPISODE, Verdict((Violation("lost", "a", (EVENT,)),), COUNTS))
    assert all(line.split()[-2] == "lost" for line in report.table[2:])
    assert "--nemesis cut --nemesis oom" in report.json["violations"][0]["repeat"]


def test_only_the_first_violations_are_shown() -> None:
    violations = [Violation("lost", str(number), (EVENT,)) for number in range(9)]
    lines = list(shown(violations))
    assert len(lines) == 2 * VIOLATIONS_SHOWN + 1
    assert lines[-1] == f"  and {9 - VIOLATIONS_SHOWN} more"


def test_the_command_that_repeats_an_episode_is_accepted() -> None:
    _, *arguments = shlex.split(repeat(EPISODE, seconds=1))
    done = subprocess.run([sys.executable, *arguments, "--list"], cwd=ROOT, check=True)
    assert done.returncode == 0
