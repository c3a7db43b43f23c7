"""The record of a process: truthful after kill -9, in order of time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.chaos.history import Recorder, merged, read
from tests.chaos.operations import disturbances, operations

_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.chaos.history import Recorder
recorder = Recorder(Path(sys.argv[1]), "worker-1.1")
first = recorder.begin("run", "a")
recorder.end("run", "ok", "a", first)
recorder.begin("run", "b")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_its_last_operation_without_an_end(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)], cwd=root, env=os.environ, check=False
    )
    assert done.returncode == -signal.SIGKILL
    events = read(tmp_path)
    runs = operations(events, "run", disturbances(events))
    assert [run.outcome for run in runs["a"]] == ["ok"]
    assert [run.outcome for run in runs["b"]] == ["unknown"]


def test_the_events_of_all_processes_are_in_order_of_time(tmp_path: Path) -> None:
    one, other = Recorder(tmp_path, "one"), Recorder(tmp_path, "other")
    for recorder in (one, other, one):
        recorder.note("send", recorder.actor)
    assert [event.actor for event in read(tmp_path)] == ["one"] * 2 + ["other"] * 2 + ["one"] * 2


def test_an_unfinished_line_is_left_out() -> None:
    whole = '{"at": 1.0, "actor": "a", "action": "send", "outcome": "invoke"}\n'
    assert len(merged([whole + whole[:20]])) == 1


def test_a_run_ends_when_its_process_is_killed(tmp_path: Path) -> None:
    worker, nemesis = Recorder(tmp_path, "worker-1.1"), Recorder(tmp_path, "nemesis")
    worker.begin("run", "a")
    nemesis.note("fault", "worker-1.1", "kill")
    events = read(tmp_path)
    (run,) = operations(events, "run", disturbances(events))["a"]
    assert run.until == events[1].at
