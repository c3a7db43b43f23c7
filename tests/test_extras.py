"""The command that installs an extra names what this installation was made from."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tambomq.extras import EXTRAS, how_to_install, is_installed

ROOT = Path(__file__).parents[1]
REQUIRES = """\
Requires-Dist: hiredis>=3.0
Requires-Dist: rich>=13; extra == "cli"
Requires-Dist: pyarrow>=18; extra == "spark"
Requires-Dist: tambomq[cli]; extra == 'spark'
Requires-Dist: pandas<3,>=2; extra == "connect"
"""
PIP = [sys.executable, "-m", "pip", "install"]

Install = Callable[[object], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes Python believe that the package was installed from somewhere."""
    info = tmp_path / "site" / "tambomq-9.9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tambomq\n{REQUIRES}")
    monkeypatch.syspath_prepend(str(info.parent))

    def made(origin: object) -> None:
        if origin:
            (info / "direct_url.json").write_text(json.dumps(origin))

    return made


def test_an_extra_of_a_package_from_an_index_is_installed_by_name(install: Install) -> None:
    install(None)
    assert shlex.split(how_to_install("spark")) == [*PIP, "tambomq[spark]"]


def test_an_extra_of_a_package_from_a_folder_is_installed_from_there(
    install: Install, tmp_path: Path
) -> None:
    folder = tmp_path / "my sources"
    folder.mkdir()
    url = folder.as_uri()
    assert "%20" in url
    install({"url": url, "dir_info": {}})
    assert shlex.split(how_to_install("spark")) == [*PIP, f"{folder}[spark]"]
    install({"url": url, "dir_info": {"editable": True}})
    assert shlex.split(how_to_install("spark")) == [*PIP, "-e", f"{folder}[spark]"]


def test_an_extra_of_a_package_from_a_wheel_is_installed_from_the_wheel(
    install: Install, tmp_path: Path
) -> None:
    wheel = tmp_path / "tambomq-9.9.9-py3-none-any.whl"
    wheel.touch()
    install({"url": wheel.as_uri(), "archive_info": {}})
    assert shlex.split(how_to_install("cli")) == [*PIP, f"{wheel}[cli]"]


def test_extras_are_installed_from_the_url_that_the_package_came_from(install: Install) -> None:
    git = "https://git.example.com/tambomq"
    install({"url": git, "vcs_info": {"vcs": "git", "commit_id": "abc123"}})
    assert shlex.split(how_to_install("cli"))[-1] == f"tambomq[cli] @ git+{git}@abc123"
    install({"url": f"{git}.whl", "archive_info": {}})
    assert shlex.split(how_to_install("cli"))[-1] == f"tambomq[cli] @ {git}.whl"


def test_without_sources_the_requirements_of_the_extra_are_named(
    install: Install, tmp_path: Path
) -> None:
    install({"url": (tmp_path / "gone").as_uri(), "dir_info": {"editable": True}})
    assert shlex.split(how_to_install("spark")) == [*PIP, "pyarrow>=18", "rich>=13"]


def test_without_pip_uv_gets_the_path_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    assert how_to_install("spark").startswith(f"uv pip install --python {sys.executable} ")


def test_several_extras_are_installed_at_once(install: Install, tmp_path: Path) -> None:
    install(None)
    assert shlex.split(how_to_install("cli,spark"))[-1] == "tambomq[cli,spark]"
    install({"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
    wanted = ["pandas<3,>=2", "rich>=13"]
    assert shlex.split(how_to_install("cli,connect")) == [*PIP, *wanted]


def test_every_module_of_an_extra_is_in_that_extra_and_not_in_the_base() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = packages_distributions()
    for module, extra in EXTRAS.items():
        listed = {_name(each) for each in project["optional-dependencies"][extra]}
        # py4j and Envoy come with those that need them.
        brought = {"py4j": {"pyspark"}, "envoy": {"pyvoy"}}.get(module)
        names = brought or {_name(each) for each in found[module]}
        assert names & listed, (module, extra)
        assert not names & {_name(each) for each in project["dependencies"]}, module


def _name(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement.lower().replace("_", "-"))[0]


def test_an_extra_of_which_a_part_is_missing_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert is_installed("spark")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert not is_installed("spark")
    assert "spark" in EXTRAS.values()
