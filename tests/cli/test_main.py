from __future__ import annotations

import subprocess
import sys

import click
import pytest

import tambomq
from tambomq.cli import main
from tambomq.cli.output import run
from tests.serve.processes import clean_environment


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(main.tambo, "tambo", ["--help"]) == 0
    shown = capsys.readouterr().out
    for name, entry in main.COMMANDS.items():
        assert name in shown
        assert entry.help in shown


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(main.tambo, "tambo", ["--version"]) == 0
    assert capsys.readouterr().out == f"tambo, version {tambomq.__version__}\n"


@pytest.mark.parametrize("args", [["nonsense"], ["serve", "--nonsense"]])
def test_an_unknown_command_or_option_is_a_usage_error(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(main.tambo, "tambo", args) == 2
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("srve", "`tambo serve`"),
        ("pipline", "`tambo pipeline`"),
        ("rsqm", "`tambo rsmq`"),
        ("queues", "`tambo chasqui queues`"),
        ("audit", "`tambo pipeline audit`"),
        ("stats", "`tambo gomq stats` or `tambo kqueue stats`"),
    ],
)
def test_a_typing_error_gets_a_suggestion(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(main.tambo, "tambo", [typed]) == 2
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert complaint == f"Error: No such command {typed!r}. Did you mean {meant}?"


def test_a_typing_error_below_gets_one_too(capsys: pytest.CaptureFixture[str]) -> None:
    for typed, meant in (("compct", "compact"), ("redrive", "dlq redrive")):
        assert run(main.tambo, "tambo", ["pipeline", typed]) == 2
        assert f"Did you mean `tambo pipeline {meant}`?" in capsys.readouterr().err


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_can_be_imported(name: str) -> None:
    context = click.Context(main.tambo)
    assert isinstance(main.tambo.get_command(context, name), click.Command)


def test_help_imports_no_command_and_nothing_slow() -> None:
    code = (
        "import sys; from tambomq.cli.main import tambo;"
        "tambo.main(['--help'], standalone_mode=False);"
        "print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    slow = {"asyncio", "redis", "rich", "tambomq.cli.serve", "tambomq.store", "tambomq.rsmq"}
    assert slow.isdisjoint(done.stdout.split())
