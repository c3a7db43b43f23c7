from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from tambomq.cli import output
from tambomq.errors import DataDirBusy, PortTaken, QueueNotFound, SettingsError, StoreUnavailable


def command(does: Callable[[], object]) -> click.Command:
    @click.command()
    @output.verbose_option
    def made() -> object:
        return does()

    return made


def raising(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return command(fail)


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (QueueNotFound("q"), 3, "tambo: queue 'q' does not exist\n"),
        (SettingsError("--x: wrong"), 2, "tambo: --x: wrong\n"),
        (output.NothingThere("no message"), 3, "tambo: no message\n"),
        (output.NothingThere(), 3, ""),
        (KeyboardInterrupt(), 130, ""),
        (click.Abort(), 130, ""),
    ],
)
def test_an_error_becomes_one_line_and_an_exit_code(
    error: BaseException, code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert output.run(raising(error), "tambo", []) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.lstrip("\n") == expected  # after ^C the shell's prompt gets a line of its own


def test_a_command_exits_0_unless_it_returns_a_code() -> None:
    assert output.run(command(lambda: None), "tambo", []) == output.OK
    assert output.run(command(lambda: output.NOTHING), "tambo", []) == output.NOTHING


def test_wrong_usage_is_reported_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.run(command(lambda: None), "tambo", ["--nonsense"]) == output.USAGE
    assert "No such option" in capsys.readouterr().err


def test_verbose_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    output.run(raising(QueueNotFound("q")), "tambo", ["--verbose"])
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert shown.endswith("tambo: queue 'q' does not exist\n")


def test_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        output.run(command(lambda: 1 // 0), "tambo", [])


def test_a_reader_that_closes_its_pipe_early_causes_no_error() -> None:
    code = (
        "import click, sys; from tambomq.cli.output import emit, run\n"
        "@click.command()\n"
        "def chatter():\n"
        "    while True: emit('word ' * 1000)\n"
        "sys.exit(run(chatter, 'tambo', []))"
    )
    talker = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert talker.stdout is not None
    talker.stdout.readline()
    talker.stdout.close()
    assert talker.communicate(timeout=60)[1] == b""
    assert talker.returncode == output.FAILED


def test_advice_follows_where_there_is_some() -> None:
    assert "--redis-port 65534" in output.explain(PortTaken("127.0.0.1", 65535))
    assert "--data-dir" in output.explain(DataDirBusy("/d", "process 1"))
    assert "tambo serve" in output.explain(StoreUnavailable("redis://h"))


def test_fault_is_one_line_without_passwords_or_escapes() -> None:
    shown = output.explain(StoreUnavailable("redis://:pw@h\n\x1b[31m"))
    assert shown.startswith("redis://:***@h \\x1b[31m: ")


@dataclass(frozen=True)
class Row:
    body: bytes
    path: Path


def test_json_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_json([Row("ñ".encode(), Path("/p")), b"\xff", ("a\x9b",)])
    assert capsys.readouterr().out == (
        '[{"body": "ñ", "path": "/p"}, {"base64": "/w=="}, ["a\\u009b"]]\n'
    )


def test_a_value_without_a_json_form_raises_type_error() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        output.emit_json(object())


def test_table_in_a_pipe_is_whole_and_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_table(["name", "n"], [["x" * 200, 1], ["\x1b[2J\n[red]", 22], [None, 3]])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["name", "n"], ["x" * 200, "1"], ["\\x1b[2J\\n[red]", "22"], ["-", "3"]]


def test_numbers_are_right_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_table(["n"], [[1], [22]])
    assert capsys.readouterr().out.split("\n")[1].startswith(" 1")


def test_control_characters_are_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit("tab\tstays, \x07 and \udc80 do not")
    assert capsys.readouterr().out == "tab\tstays, \\x07 and \\udc80 do not\n"
