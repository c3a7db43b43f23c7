"""The package as users have it: a wheel in an empty environment, far from the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.package.building import Distributions, Environment
from tests.serve.processes import serving

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.jvm,
    pytest.mark.timeout(1800),  # a fresh machine downloads Spark first
    pytest.mark.xdist_group("package"),
]


@pytest.fixture(scope="session")
def core(environment: Environment, built: Distributions) -> Environment:
    """The package without extras."""
    environment.install(str(built.wheel))
    return environment


@pytest.fixture(scope="session")
def complete(core: Environment, built: Distributions) -> Environment:
    """The package with all of them."""
    core.install(f"{built.wheel}[all]")
    return core


def test_without_extras_every_command_has_its_help(core: Environment) -> None:
    seen = core.run(core.python, HERE / "smoke_core.py").split()
    assert seen[::2] == ["commands", "modules"]
    assert int(seen[1]) > 50
    for name in ("tambo", "rsmqctl", "chasqui"):
        assert core.run(core.script(name), "--help")


def test_with_all_extras_every_module_command_and_format_works(
    complete: Environment, tmp_path: Path
) -> None:
    complete.run(complete.python, HERE / "smoke_core.py", "--extras")
    tambo = complete.script("tambo")
    with serving(tmp_path, command=(str(tambo),)) as serve:
        url = serve.url
        demo = (tambo, "demo", "--keep", "--count", "50", "--seconds", "1")
        complete.run(*demo, "--ready-file", serve.ready_file)
        formats = complete.run(complete.python, HERE / "smoke_spark.py", url)
        assert formats.split() == ["rsmq", "1", "chasqui", "1", "gomq", "1", "tambo", "1"]

        lake, page = tmp_path / "lake", tmp_path / "report.html"
        complete.run(tambo, "pipeline", "run", "--once", "--lake", lake, "--redis-url", url)
        complete.run(tambo, "pipeline", "report", "--lake", lake, "--out", page)
        assert "<svg" in page.read_text("utf-8")
        audit = complete.run(tambo, "pipeline", "audit", "--redis-url", url)
        assert "all is well" in audit
