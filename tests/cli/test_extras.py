"""A command that needs an extra says which, where it is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tambomq.cli.extras import extras_required
from tambomq.cli.output import USAGE
from tambomq.extras import how_to_install

WITHOUT_ARROW = """
import subprocess
import sys
sys.modules["pyarrow"] = None  # as if it were not installed
from tambomq.cli.main import main
main(["pipeline", "dlq"])
"""


def test_a_command_without_its_extra_says_what_to_install() -> None:
    command = [sys.executable, "-c", WITHOUT_ARROW]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == USAGE
    assert done.stderr.endswith(f"needs it: {how_to_install('spark')}\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["tambomq.gone", None])
def test_a_module_of_no_extra_is_a_fault_of_ours(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError), extras_required():
        raise ModuleNotFoundError(name=name)
