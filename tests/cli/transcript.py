"""Recorded sessions: commands with what they print, played again and compared.

The format is told on top of each file in ``tests/vectors``.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from tambomq.cli.output import run
from tests.serve.processes import ask

VECTORS = Path(__file__).parents[1] / "vectors"

_SHAPES = {"ID": "[A-Za-z0-9]{32}", "S": r"\d{10}", "MS": r"\d{13}"}
_PLACEHOLDER = re.compile(r"<(?P<name>(?P<shape>ID|MS|S)\d*)(?:\+(?P<more>\d+))?>")


@dataclass(frozen=True, slots=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str = ""

    @property
    def lines(self) -> list[str]:
        """All of it, as a transcript has it."""
        lines = [f"1> {line}" for line in self.out.splitlines()]
        lines += [f"2> {line}".rstrip() for line in self.err.splitlines()]
        return [*lines, f"exit {self.code}"]


def call(command: click.Command, prog: str, *args: str, url: str, stdin: bytes = b"") -> Done:
    """Run *command* in this process as its entry point would."""
    with CliRunner(env={"REDIS_URL": url, "TAMBO_REDIS_URL": None}).isolation(stdin) as (
        out,
        err,
        _,
    ):
        code = run(command, prog, args)
        sys.stdout.flush()
        sys.stderr.flush()
    return Done(code, out.getvalue().decode(), err.getvalue().decode())


@dataclass(slots=True)
class Step:
    """A command of a transcript and the lines below it."""

    prompt: str
    command: str
    lines: list[str] = field(default_factory=list)


def steps(path: Path) -> list[Step]:
    """Read a transcript."""
    found: list[Step] = []
    for line in path.read_text().splitlines():
        if line[:2] in ("$ ", "> "):
            found.append(Step(line[0], line[2:]))
        elif line and not line.startswith("#"):
            found[-1].lines.append(line.rstrip())
    return found


Answer = Callable[[list[str]], list[str]]


def play(path: Path, answers: dict[str, Answer]) -> dict[str, str]:
    """Give each command to the answerer of its prompt; return what the placeholders stood for."""
    values: dict[str, str] = {}
    for step in steps(path):
        shown = "\n".join(answers[step.prompt](shlex.split(_filled(step.command, values))))
        expected = "\n".join(step.lines)
        matched = re.fullmatch(_pattern(expected, values), shown)
        assert matched, f"{step.command}\nexpected\n{expected}\ngot\n{shown}"
        values.update(matched.groupdict())
    return values


def _filled(command: str, values: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values[found["name"]], command)


def _pattern(text: str, values: dict[str, str]) -> str:
    """The lines as a regular expression; a new placeholder becomes a group of its name."""
    pattern, end, new = "", 0, set[str]()
    for found in _PLACEHOLDER.finditer(text):
        pattern += re.escape(text[end : found.start()])
        end = found.end()
        name = found["name"]
        if found["more"]:
            pattern += str(int(values[name]) + int(found["more"]))
        elif name in values:
            pattern += re.escape(values[name])
        elif name in new:
            pattern += f"(?P={name})"
        else:
            pattern += f"(?P<{name}>{_SHAPES[found['shape']]})"
            new.add(name)
    return pattern + re.escape(text[end:])


def redis_cli(url: str, command: list[str]) -> list[str]:
    """Ask a server and show its reply as redis-cli does."""
    return _shown(ask(url, *command))


def _shown(reply: Any) -> list[str]:
    match reply:
        case None:
            return ["(nil)"]
        case int():
            return [f"(integer) {reply}"]
        case bytes():
            text = reply.decode("latin-1").encode("unicode_escape").decode().replace('"', '\\"')
            return [f'"{text}"']
        case []:
            return ["(empty array)"]
        case list():
            width = len(str(len(reply)))
            return [f"{n:>{width}}) {_shown(item)[0]}" for n, item in enumerate(reply, 1)]
    raise TypeError(f"no notation for {reply!r}")
