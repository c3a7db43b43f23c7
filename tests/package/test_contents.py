"""What the distributions hold is what the tree holds."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import PurePosixPath

import pytest

from tests.package.building import Distributions, tree

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("package")]


def test_the_wheel_holds_every_file_of_the_sources_and_no_other(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == tree()


def test_the_source_distribution_holds_the_sources_and_what_builds_them(
    built: Distributions,
) -> None:
    with tarfile.open(built.sdist) as sdist:
        files = [PurePosixPath(entry.name) for entry in sdist.getmembers() if entry.isfile()]
    below = {str(PurePosixPath(*path.parts[1:])) for path in files}
    sources = {name.removeprefix("src/") for name in below if name.startswith("src/")}
    assert {name for name in sources if ".egg-info/" not in name} == tree()
    rest = {name for name in below if not name.startswith("src/")}
    made = {"PKG-INFO", "setup.cfg"}
    assert rest - made == {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}
