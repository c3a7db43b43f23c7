"""Type checkers accept what fits the typed API, and refuse each line that does not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TYPING = Path(__file__).parent / "typing"
ROOT = Path(__file__).parents[2]


def checked(*command: str) -> set[tuple[str, int]]:
    """Return file and line of each error that a checker finds."""
    ran = subprocess.run(
        [*command, str(TYPING / "fits.py"), str(TYPING / "misfits.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"(\w+)\.py:(\d+):.*\berror\b", ran.stdout)
    assert found, ran.stdout + ran.stderr
    return {(file, int(line)) for file, line in found}


def refused() -> set[tuple[str, int]]:
    lines = (TYPING / "misfits.py").read_text().splitlines()
    return {("misfits", n) for n, line in enumerate(lines, 1) if line.endswith("# refused")}


@pytest.mark.slow
def test_mypy_refuses_what_does_not_fit_and_nothing_else(tmp_path: Path) -> None:
    mypy = (sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path))
    assert checked(*mypy, "--follow-imports=silent") == refused()


@pytest.mark.interop
def test_pyright_refuses_what_does_not_fit_and_nothing_else() -> None:
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent))
    if pyright is None:
        pytest.skip("pyright is not installed")
    assert checked(pyright, "--pythonpath", sys.executable) == refused()
