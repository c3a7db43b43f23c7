"""Builds the distributions from a copy of the sources, and installs them where nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SOURCES = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml")
_BUILD_S, _INSTALL_S, _RUN_S = 300, 900, 600


@dataclass(frozen=True, slots=True)
class Distributions:
    """What a release would upload."""

    wheel: Path
    sdist: Path


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment that has never seen the repository."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def install(self, requirement: str) -> None:
        """Install *requirement*, with the versions that CI runs."""
        pip = (self.python, "-m", "pip", "-qq", "--disable-pip-version-check", "install")
        # Most of Spark's modules are never imported here: to compile all doubles pip's work.
        versions = ("--no-compile", "-c", ROOT / "constraints.txt")
        _run(*pip, *versions, requirement, cwd=self.folder, within_s=_INSTALL_S)

    def run(self, *command: str | Path, within_s: int = _RUN_S) -> str:
        """Run *command* outside the repository; return its output, fail unless it exits with 0."""
        return _run(*command, cwd=self.folder, within_s=within_s)

    def fails(self, *command: str | Path) -> str:
        """Run *command*, which is to exit with 2; return what it says on stderr."""
        done = _done(*command, cwd=self.folder, within_s=_RUN_S)
        assert (done.returncode, done.stdout) == (2, ""), f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stderr

    def packages(self) -> set[str]:
        """The names of all that is installed, pip and what comes with it excepted."""
        listed = self.run(self.python, "-m", "pip", "list", "--format=freeze")
        return {line.partition("==")[0] for line in listed.splitlines()} - {"pip", "setuptools"}

    def script(self, name: str) -> Path:
        """The command *name* that the package has installed."""
        return self.folder / "bin" / name


def build(into: Path) -> Distributions:
    """Build the source distribution, and the wheel from it."""
    copy = into / "sources"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for name in _SOURCES:
        shutil.copy(ROOT / name, copy / name)
    out = into / "dist"
    _run(sys.executable, "-m", "build", "--outdir", out, copy, cwd=into, within_s=_BUILD_S)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Distributions(wheel, sdist)


def create(folder: Path, python: str) -> Environment:
    """Make an empty environment of the interpreter *python*."""
    _run(python, "-m", "venv", folder, cwd=folder.parent, within_s=_BUILD_S)
    return Environment(folder)


def tree() -> set[str]:
    """Every file that belongs into an installed package, as a path below ``src``."""
    src = ROOT / "src"
    files = (path.relative_to(src) for path in src.rglob("*") if path.is_file())
    return {str(path) for path in files if _ships(path)}


def _ships(path: Path) -> bool:
    return path.suffix != ".pyc" and not any(part.endswith(".egg-info") for part in path.parts)


def _run(*command: str | Path, cwd: Path, within_s: int) -> str:
    done = _done(*command, cwd=cwd, within_s=within_s)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _done(*command: str | Path, cwd: Path, within_s: int) -> subprocess.CompletedProcess[str]:
    hidden = ("PYTHON", "TAMBO_", "VIRTUAL_ENV", "SPARK_", "PYSPARK_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=within_s
    )
