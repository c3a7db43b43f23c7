"""Programs written for the engine: only their import is changed, and they print the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.peers.driver import in_python
from tests.servers import Server

pytestmark = pytest.mark.interop

PROGRAMS = sorted((Path(__file__).parent / "their_examples").glob("*.py"))
TIMEOUT_S = 120


@pytest.fixture
def url(running: Callable[[str], Server]) -> str:
    """A server that the engine can use, empty for each program."""
    url = running("redis8").url
    with redis.Redis.from_url(url) as admin:
        admin.flushall()
    return url


@pytest.mark.parametrize("program", PROGRAMS, ids=[path.stem for path in PROGRAMS])
def test_a_program_prints_the_same_with_another_import(program: Path, url: str) -> None:
    source = program.read_text()
    assert source.count("from chasquimq import ") == 1
    theirs = printed(in_python("chasquimq"), source, url)
    with redis.Redis.from_url(url) as admin:
        admin.flushall()
    changed = source.replace("from chasquimq import ", "from tambomq.chasqui import ")
    assert printed([sys.executable], changed, url) == theirs
    assert theirs


def printed(python: list[str | Path], source: str, url: str) -> str:
    """Return the output of the program."""
    done = subprocess.run(
        [*python, "-u", "-c", source, url],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=TIMEOUT_S,
    )
    assert done.stdout, done.stderr
    # The engine may end the interpreter badly, after all was said; a program that fails says so.
    # The tracebacks in our warnings begin with a handler, and that of a program with its module.
    assert "in <module>" not in done.stderr, done.stderr
    return done.stdout
