"""Each example runs, and ends by itself with what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Server

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_often_as_it_is_started(path: Path, server: Server) -> None:
    first, second = run(path, server), run(path, server)
    assert first == second
    assert first.endswith("done\n")


def run(path: Path, server: Server) -> str:
    env = {**os.environ, "REDIS_URL": server.url}
    done = subprocess.run(
        [sys.executable, path], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
