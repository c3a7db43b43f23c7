"""A command that needs an extra says which, where it is not installed."""

from __future__ import annotations

import sys

import pytest

from tambomq.cli.extras import extras_required
from tambomq.cli.main import tambo
from tambomq.cli.output import USAGE, run


def test_a_command_without_its_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("tambomq.pipeline")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "tambomq.cli.pipeline_redrive", raising=False)
    monkeypatch.delitem(sys.modules, "tambomq.cli.pipeline_dlq", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not there
    assert run(tambo, "tambo", ["pipeline", "dlq"]) == USAGE
    captured = capsys.readouterr()
    assert captured.err.endswith("needs it: pip install 'tambomq[spark]'\n")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("name", ["tambomq.gone", None])
def test_a_module_of_no_extra_is_a_fault_of_ours(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError), extras_required():
        raise ModuleNotFoundError(name=name)
