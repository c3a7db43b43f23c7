"""Each example runs, prints what it promises, and ends by itself."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import sparking
from tests.serve.processes import serving
from tests.servers import Server
from tests.spark import sampling

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OF_SPARK = [path for path in EXAMPLES if "from tambomq.spark import" in path.read_text()]
OTHERS = [path for path in EXAMPLES if path not in OF_SPARK]
QUICK = sampling.some("examples in place", OF_SPARK, 1)


def name_of(path: Path) -> str:
    return path.stem


@pytest.fixture
def environment(server: Server, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of an example: the addresses of the servers."""
    with serving(tmp_path, "--redis-url", server.url, "--no-chasqui") as serve:
        yield {"REDIS_URL": server.url, "GOMQ_ADDRESS": serve.address("gomq")}


@pytest.mark.parametrize("path", OTHERS, ids=name_of)
def test_an_example_runs_as_often_as_it_is_started(path: Path, environment: dict[str, str]) -> None:
    first, second = run(path, environment), run(path, environment)
    assert first == second
    assert first.endswith("done\n")


@pytest.mark.timeout(300)  # it may be the one that starts Spark
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path in QUICK else pytest.mark.slow, id=name_of(path))
        for path in OF_SPARK
    ],
)
def test_an_example_of_spark_runs_on_the_session_of_all_tests(
    path: Path,
    environment: dict[str, str],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with sparking.lent(spark):
        runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.endswith("done\n")


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", sampling.some("examples", OF_SPARK, 1), ids=name_of)
def test_an_example_of_spark_runs_as_a_process(path: Path, environment: dict[str, str]) -> None:
    assert run(path, environment).endswith("done\n")


def test_the_worker_runs_what_the_producer_left(server: Server) -> None:
    filled = run(ROOT / "examples/chasqui_producer.py", {"REDIS_URL": server.url})
    assert filled == (
        "taken back: True\n"
        "recurs as report::cron:30 4 * * *:Europe/Berlin\n"
        "waiting 8 delayed 1 recurring 0\n"
        "refused at 8\n"
        "done\n"
    )
    worked = run(ROOT / "examples/chasqui_worker.py", {"REDIS_URL": server.url})
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


def run(path: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, path],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
