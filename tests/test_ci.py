"""The suite in several processes, with reports that survive the transfer between them."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.logger import PySparkLogger

from tests.budget import durations, summary
from tests.ci import sendable
from tests.groups import group_of

ROOT = Path(__file__).parents[1]

ODD = """
import logging

def test_that_writes_what_utf_8_has_no_bytes_for() -> None:
    logging.getLogger("odd").warning("\\udcff")
    assert "\\udcff" == "\\ud800"
"""

GROUPS = """
import pytest

def test_alone() -> None: ...

@pytest.mark.xdist_group("large")
@pytest.mark.parametrize("n", [0, 1])
def test_large(n: int) -> None: ...

@pytest.mark.slow
def test_slow() -> None: ...

@pytest.mark.slow
@pytest.mark.timeout(900)
def test_long() -> None: ...

@pytest.mark.jvm
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("beside-spark")
def test_beside() -> None: ...

@pytest.mark.xdist_group("spark")
def test_spark() -> None: ...
"""


def test_a_lone_surrogate_is_spelled_out_wherever_a_report_has_one() -> None:
    report = {"sections": [("log", "a\udcffé")], "longrepr": {"\ud800": None}, "duration": 0.5}
    expected = {"sections": [("log", "a\\udcffé")], "longrepr": {"\\ud800": None}, "duration": 0.5}
    assert sendable(report) == expected


def test_a_logger_of_pyspark_changes_no_format_of_the_log_of_a_test(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theirs = PySparkLogger.getLogger("tests.test_ci")
    theirs.addHandler(caplog.handler)  # as pytest does with a logger that does not propagate
    theirs.removeHandler(caplog.handler)
    logging.getLogger("ours").warning('"quoted"')
    assert "test_ci.py" in caplog.text
    assert '"quoted"' in caplog.text


@pytest.mark.slow
def test_a_test_that_writes_one_ends_no_run_in_several_processes(tmp_path: Path) -> None:
    (tmp_path / "test_odd.py").write_text(ODD)
    run = pytest_in(tmp_path, "-n1", "-p", "tests.ci", "--junit-xml=odd.xml")
    assert run.returncode == 1, run.stdout
    assert "1 failed" in run.stdout
    assert "INTERNALERROR" not in run.stdout
    took = durations(tmp_path / "odd.xml")
    assert list(took) == ["test_odd::test_that_writes_what_utf_8_has_no_bytes_for"]


@pytest.mark.slow
def test_groups_with_spark_and_what_may_last_longest_are_handed_out_first(tmp_path: Path) -> None:
    (tmp_path / "test_groups.py").write_text(GROUPS)
    run = pytest_in(tmp_path, "-n1", "--dist=loadgroup", "-vv", "-p", "tests.ci")
    assert run.returncode == 0, run.stdout
    ran = [line.rpartition("::")[2].strip() for line in run.stdout.splitlines() if "PASSED" in line]
    long = ["test_spark", "test_beside", "test_long", "test_slow"]
    assert ran == [*long, "test_large[0]", "test_large[1]", "test_alone"]


@pytest.mark.slow
def test_a_group_is_run_by_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_groups.py").write_text(GROUPS.replace("[0, 1]", "range(20)"))
    run = pytest_in(tmp_path, "-n2", "--dist=loadgroup", "-vv", "-p", "tests.ci")
    assert run.returncode == 0, run.stdout
    ran = [
        line.split()[0] for line in run.stdout.splitlines() if "PASSED" in line and "large" in line
    ]
    assert len(ran) == 20
    assert len(set(ran)) == 1


def pytest_in(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    return subprocess.run(
        [*command, f"--rootdir={folder}", "-c/dev/null", folder],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


# ── groups ───────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def costly() -> None:
    """Started once for this module."""


def test_tests_that_share_a_module_fixture_are_grouped(
    costly: None, request: pytest.FixtureRequest
) -> None:
    assert group_of(request.node) == "tests.test_ci"


def test_tests_that_share_nothing_may_run_anywhere(request: pytest.FixtureRequest) -> None:
    assert group_of(request.node) == ""


# ── make budget ──────────────────────────────────────────────────────────────


def test_a_budget_names_what_took_too_long() -> None:
    text = summary({"tests.a.test_x::test_one": 3.5, "tests.a.test_x::test_two": 0.5})
    assert "4.0 s  tests.a" in text
    assert "1 over 3 s without a mark:\n     3.5 s  tests.a.test_x::test_one" in text
    assert text.count("test_two") == 1
