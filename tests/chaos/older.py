"""An earlier version of the product, taken from the repository for rolling upgrades."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from tests.chaos.member import ROOT


def last_tag() -> str | None:
    """Return the last tag before this version; `None` without one, or without a repository."""
    found = _git("describe", "--tags", "--abbrev=0", "HEAD^")
    return found.decode().strip() if found else None


def source_of(revision: str, folder: Path) -> Path:
    """Write the sources of *revision* into *folder*; return them.

    Raises `LookupError` if there is no such revision, or no repository.
    """
    archive = _git("archive", "--format=tar", revision, "src")
    if archive is None:
        raise LookupError(f"git has no revision {revision!r} with sources")
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


def _git(*command: str) -> bytes | None:
    try:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
