"""Each example runs, and ends by itself with what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.processes import serving
from tests.servers import Server

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.timeout(300)  # those of Spark start it twice
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_often_as_it_is_started(
    path: Path, server: Server, tmp_path: Path
) -> None:
    with serving(tmp_path, "--redis-url", server.url, "--no-chasqui") as serve:
        env = {"GOMQ_ADDRESS": serve.address("gomq")}
        first, second = run(path, server, **env), run(path, server, **env)
    assert first == second
    assert first.endswith("done\n")


def test_the_worker_runs_what_the_producer_left(server: Server) -> None:
    filled = run(ROOT / "examples/chasqui_producer.py", server)
    assert filled == (
        "taken back: True\n"
        "recurs as report::cron:30 4 * * *:Europe/Berlin\n"
        "waiting 8 delayed 1 recurring 0\n"
        "refused at 8\n"
        "done\n"
    )
    worked = run(ROOT / "examples/chasqui_worker.py", server)
    assert worked == (
        "broken: ran 2 times\n"
        "flaky: ran 2 times\n"
        "invoice: ran 1 times\n"
        "newsletter: ran 3 times\n"
        "nonsense: ran 1 times\n"
        "reminder: ran 1 times\n"
        "welcome: ran 2 times\n"
        "broken is dead: retries_exhausted, it never works\n"
        "nonsense is dead: unrecoverable, nobody can send this\n"
        "result: sent to grace@example.com\n"
        "completed 8 dead 2\n"
        "done\n"
    )


def run(path: Path, server: Server, **more: str) -> str:
    env = {**os.environ, "REDIS_URL": server.url, **more}
    done = subprocess.run(
        [sys.executable, path], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
