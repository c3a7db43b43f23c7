"""One build for all tests of the package, and one environment for each Python that is there."""

from __future__ import annotations

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
    other = shutil.which(OTHER_PYTHON)
    works = other and subprocess.run([other, "-c", ""], capture_output=True, check=False)
    return [sys.executable, *([OTHER_PYTHON] if works and works.returncode == 0 else [])]


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
