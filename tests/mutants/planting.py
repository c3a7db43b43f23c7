"""Plants a fault in a copy of the sources and runs the test that must see it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
WITHIN_S = 240
WAIT_S = "15"
"""How long the test waits for what the fault keeps from happening."""
_PASSED, _FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Fault:
    """One change that breaks a guarantee, and the test that fails with it."""

    name: str
    """What is broken, in words."""
    file: str
    """Below ``src/tambomq``."""
    old: str
    """Stands there exactly once."""
    new: str
    test: str
    """The id of the test, below ``tests``."""

    @property
    def path(self) -> Path:
        """The file in the tree."""
        return SRC / "tambomq" / self.file

    def planted(self) -> str:
        """Return the text of the file with the fault in it."""
        text = self.path.read_text("utf-8")
        assert text.count(self.old) == 1, f"{self.name}: {self.old!r} is not once in {self.file}"
        return text.replace(self.old, self.new)


def outcome(fault: Fault, folder: Path) -> tuple[int, str]:
    """Return pytest's exit code and output for the test of *fault*, with the fault planted."""
    copy = folder / "src"
    # With bytecode, whose sources keep their times: only the planted file is compiled anew.
    shutil.copytree(SRC, copy, ignore=shutil.ignore_patterns("*.egg-info"))
    (copy / "tambomq" / fault.file).write_text(fault.planted(), "utf-8")
    # Both for the test and for every process that it starts.
    path = f"{copy}{os.pathsep}{ROOT}"
    env = {**os.environ, "PYTHONPATH": path, "TAMBO_TEST_WAIT_S": WAIT_S}
    env.pop("PYTEST_XDIST_WORKER", None)
    without = ("-p", "no:cacheprovider", "-p", "no:schemathesis")  # the latter imports for 0.5 s
    command = (sys.executable, "-m", "pytest", "-q", "-x", *without)
    config = ("-o", f"pythonpath={copy} {ROOT}", "-n", "0", "-m", "not interop")
    done = subprocess.run(
        [*command, *config, f"tests/{fault.test}"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.returncode, done.stdout[-4000:] + done.stderr[-1000:]


def is_killed(code: int) -> bool:
    """Whether tests were run and failed; that none could be collected kills nothing."""
    assert code in (_PASSED, _FAILED), f"pytest ended with {code}"
    return code == _FAILED
