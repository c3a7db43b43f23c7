"""The load generator: C, compiled when it is first needed, so that it is never the slow part."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.model import ROOT

_HERE = Path(__file__).parent
_CACHE = ROOT / ".cache" / "loadgen"


class NoCompiler(Exception):
    """There is no C compiler, or it does not like the source."""


def program(name: str) -> Path:
    """Compile a C file of this folder, unless that was done before; raises `NoCompiler`."""
    source = _HERE / f"{name}.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    binary = _CACHE / f"{name}-{digest}"
    if not binary.exists():
        _compile(source, binary)
    return binary


def _compile(source: Path, binary: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompiler(f"no C compiler to build {source.name} with: install gcc or set CC")
    binary.parent.mkdir(parents=True, exist_ok=True)
    # Two runs may compile at once: each its own file, and the name appears with a whole one.
    fresh = binary.with_name(f"{binary.name}.{os.getpid()}")
    command = [compiler, "-O2", "-std=gnu11", "-pthread", "-o", str(fresh), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCompiler(f"{compiler} cannot build {source.name}:\n{done.stderr[-2000:]}")
    fresh.rename(binary)
