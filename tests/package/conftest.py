"""One build for all tests of the package, and one environment for each Python that is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.package.building import Distributions, Environment, build, create

OTHER_PYTHON = "python3.13"


def _pythons() -> list[str]:
    """Our own interpreter, and another version where one works."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    # A shim of pyenv is there also for versions that are not chosen, and then does not work.
    installed = sorted(pyenv.glob(f"versions/*/bin/{OTHER_PYTHON}"))
    others = [found for found in (shutil.which(OTHER_PYTHON), *map(str, installed)) if found]
    return [sys.executable, *[other for other in others if _works(other)][:1]]


def _works(python: str) -> bool:
    ran = subprocess.run([python, "-c", ""], capture_output=True, check=False)
    return ran.returncode == 0


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Wheel and source distribution."""
    return build(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="session", params=_pythons(), ids=lambda python: Path(python).name)
def environment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """An empty environment; a gigabyte once everything is installed, so it is deleted."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    yield create(folder, request.param)
    shutil.rmtree(folder)
