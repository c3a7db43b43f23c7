"""Runs what a page of the documentation shows, and compares what it says happens.

=========== ===========================================================================
fence       what is done with it
=========== ===========================================================================
python      executed; the blocks of a page share their names. What is printed must be
            the comments behind the ``print`` calls, in their order.
console     each line that begins with ``$`` is a command, the lines below are its
            output. It must exit 0, unless ``$ echo $?`` follows.
toml        must be settings.
text,       illustrations.
mermaid
=========== ===========================================================================

In expected output ``…`` stands for anything, on a line of its own for any lines; ``<ID>`` for a
message id, the same wherever it is repeated on the page, in commands too. Blanks count as one.
The address 127.0.0.1:6379 means the test's own server; for the brokers see `docs_doors`. ``tambo
serve`` and ``make run`` are started on free ports, compared once they are ready, and stopped. Other
targets of make must exist and are not run; nor is what `NOT_RUN` names. Commands of `FOREIGN` tools
are run where these are installed, which `make interop` sees to.

Commands are processes. Where a page uses Spark, commands of ours are called in this process
instead, on a session that runs already: a JVM for each would take minutes.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tambomq import settings
from tambomq.cli.main import tambo
from tambomq.cli.output import run as run_command
from tambomq.cli.rsmqctl import rsmqctl
from tambomq.gomq import GomqClient
from tambomq.kqueue import Consumer, Producer
from tambomq.rsmq import Rsmq
from tambomq.store import aio, connect, sync
from tests import docs_doors
from tests.docs_doors import Doors
from tests.servers import Server, eventually

ROOT = Path(__file__).parents[1]
SHOWN = "127.0.0.1:6379"
ILLUSTRATIONS = {"text", "mermaid"}
NOT_RUN = {". .venv/bin/activate": "VENV := .venv"}
"""Commands that mean something in the reader's shell alone, and what of the Makefile they need."""

FOREIGN = {"buf": ROOT / "tests/peers/buf/node_modules/.bin"}
"""Tools of others that pages show, and where `scripts/peers` puts them."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r"127\.0\.0\.1:\d{4,5}\b")
_ID = re.compile(r"<(ID\d*)>")
_PRINTED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)
_TARGET = re.compile(r"^(\w+):.*\n((?:\t.*\n)*)", re.MULTILINE)
_SPARK_COMMAND = re.compile(r"\btambo pipeline (?:run|report|sql|replay|dlq redrive)\b")
_PROGRAMS = {"tambo": tambo, "rsmqctl": rsmqctl}
_DEMO_FLAG = re.compile(r" \\\n +--\w+-(?:url|address) \S*127\.0\.0\.1:(?:6379|10001|8000)")
_SHELL_WORD = re.compile(r"[|&;<>()$`]+")


class Untrue(AssertionError):
    """The page says something that does not happen."""


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two fences."""

    language: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found = [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 2)
        for match in _FENCE.finditer(text)
    ]
    fences = sum(line.lstrip().startswith("```") for line in text.splitlines())
    if fences != 2 * len(found):
        raise Untrue("a fence is indented, or not closed")
    return found


def sessions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = re.sub(r"\\\n *", "", part).partition("\n")
        yield command, output


def spark_commands(text: str) -> list[str]:
    """Return the commands of a page that start Spark."""
    shown = [block.text for block in blocks(text) if block.language == "console"]
    commands = [command for each in shown for command, _ in sessions(each)]
    return [command for command in commands if _SPARK_COMMAND.search(command)]


def uses_spark(text: str) -> bool:
    """Whether a page that says *text* has to have a Spark session."""
    code = [block.text for block in blocks(text) if block.language == "python"]
    return any("tambomq.spark" in each for each in code) or bool(spark_commands(text))


class Page:
    """A page that is run against *server*, with *home* as the reader's directory.

    *in_process*: commands of ours are called in this process. Whoever wants that sees to it that
    `tambomq.spark.session` returns a session that is running.
    """

    def __init__(self, name: str, server: Server, home: Path, *, in_process: bool = False) -> None:
        self._name, self._home, self._in_process = name, home, in_process
        self._address = f"127.0.0.1:{server.port}"
        self._ids: dict[str, str] = {}
        self._names: dict[str, Any] = {"__name__": "__page__"}
        self._exit_code = 0
        ours = ("CHASQUI_", "TAMBO_", "REDIS_", "XDG_")
        self._env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        self._env |= {"REDIS_URL": server.url, "HOME": str(home), "TZ": "UTC"}
        # The classes of Spark's Java are kept there: half of the time that it takes to start.
        self._env["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        found = [str(Path(sys.executable).parent), *map(str, FOREIGN.values()), os.environ["PATH"]]
        self._env["PATH"] = ":".join(found)
        self._server = server
        self._doors: Doors | None = None
        self._skipped = False
        home.mkdir(exist_ok=True)
        (home / "examples").symlink_to(ROOT / "examples")

    def run(self, text: str) -> None:
        """Run all blocks of the page; raise `Untrue` for what does not happen."""
        with contextlib.ExitStack() as stack:
            if docs_doors.are_needed(text):
                at = self._home / "doors"
                self._doors = stack.enter_context(docs_doors.opened(self._server, at))
            stack.callback(self._close_clients)
            for block in blocks(text):
                self._run(block)

    def _close_clients(self) -> None:
        for value in self._names.values():
            if isinstance(value, Rsmq | GomqClient | Producer | Consumer):
                value.close()

    def _run(self, block: Block) -> None:
        where = f"{self._name}:{block.line}"
        match block.language:
            case "python":
                self._python(block, where)
            case "console":
                if not block.text.startswith("$ "):
                    raise Untrue(f"{where}: a console block begins with a command")
                for command, output in sessions(block.text):
                    self._command(command, output, where)
                if self._exit_code:
                    raise Untrue(f"{where}: the last command exits {self._exit_code}")
            case "toml":
                (self._home / "page.toml").write_text(block.text)
                settings.load(self._home / "page.toml", env={})
            case language if language not in ILLUSTRATIONS:
                raise Untrue(f"{where}: nobody knows how to run {language or 'a bare block'!r}")

    def _python(self, block: Block, where: str) -> None:
        source = "\n" * (block.line - 1) + self._real(block.text)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = compile(source, self._name, "exec", dont_inherit=True)
            exec(code, self._names)
        expected = "".join(f"{line}\n" for line in _PRINTED.findall(block.text))
        self._compare(expected, self._shown(printed.getvalue()), where)

    def _command(self, command: str, expected: str, where: str) -> None:
        if self._exit_code and command != "echo $?":
            raise Untrue(f"{where}: exit {self._exit_code} before {command!r}")
        words = shlex.split(command)
        where = f"{where}: {command}"
        if words[0] in FOREIGN and not is_installed(words[0]):
            self._skipped = True
            return
        if self._skipped and words[0] not in FOREIGN:
            # It shows what the tool has done.
            self._skipped = False
            return
        if words[0] == "make":
            words = _made(words)
        elif command in NOT_RUN:
            if NOT_RUN[command] not in (ROOT / "Makefile").read_text():
                raise Untrue(f"{where}: the Makefile has no {NOT_RUN[command]}")
            words = []
        if words[:2] == ["tambo", "serve"]:
            self._compare(expected, self._serve(words), where)
        elif self._in_process and _is_ours(words):
            self._compare(expected, self._call(command, where), where)
        elif words:
            self._compare(expected, self._shell(command), where)

    def _call(self, command: str, where: str) -> str:
        """Return what a command of ours says that is called in this process."""
        lexer = shlex.shlex(self._filled(command), posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        program, *words = lexer
        if any(_SHELL_WORD.fullmatch(word) for word in words):
            raise Untrue(f"{where}: where Spark is used, commands stand alone, without a pipe")
        env = {name: self._env.get(name) for name in {*self._env, *os.environ}}
        runner = CliRunner(env=env)
        with contextlib.chdir(self._home), runner.isolation() as (_, _, said):
            self._exit_code = run_command(_PROGRAMS[program], program, words)
            sys.stdout.flush()
            sys.stderr.flush()
        return self._shown(said.getvalue().decode())

    def _filled(self, command: str) -> str:
        """Return *command* with the ids and addresses that it stands for."""
        return self._real(_ID.sub(lambda match: self._ids[match[1]], command))

    def _shell(self, command: str) -> str:
        command = self._filled(command)
        done = subprocess.run(
            ["bash", "-c", f"(exit {self._exit_code}); {command}"],
            cwd=self._home,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self._exit_code = done.returncode
        return self._shown(done.stdout)

    def _real(self, text: str) -> str:
        """Return what the page says, with the addresses of the test's own servers."""
        text = text.replace(SHOWN, self._address)
        return self._doors.real(text) if self._doors else text

    def _shown(self, text: str) -> str:
        """Return what happened, with the addresses that the page shows."""
        text = text.replace(self._address, SHOWN)
        return self._doors.shown(text) if self._doors else text

    def _serve(self, words: list[str]) -> str:
        """Return what the command says when it is ready, or when it ends without ever being so."""
        ready, output = self._home / "ready.json", self._home / "output"
        words = [word.replace(SHOWN, self._address) for word in words]
        own = [] if "--redis-url" in words else ["--redis-port", "0"]
        own += [word for door in ("gomq", "kqueue", "http") for word in (f"--{door}-port", "0")]
        with output.open("w") as file:
            process = subprocess.Popen(
                [*words, *own, "--ready-file", str(ready)],
                cwd=self._home,
                env=self._env,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            eventually(lambda: ready.exists() or process.poll() is not None, within_s=20)
            said = output.read_text().replace(self._address, SHOWN)
        finally:
            process.send_signal(signal.SIGINT)
            self._exit_code = process.wait(20)
        return _default_ports(said.replace(str(self._home), "~"), words)

    def _compare(self, expected: str, actual: str, where: str) -> None:
        seen: set[str] = set()
        pattern = "".join(self._pattern(line, seen) for line in expected.rstrip().splitlines())
        said = "".join(f"{_squeezed(line)}\n" for line in actual.rstrip().splitlines())
        if (match := re.fullmatch(pattern, said)) is None:
            raise Untrue(f"{where}\n--- the page says\n{expected}\n--- what happens\n{actual}")
        self._ids |= match.groupdict()

    def _pattern(self, line: str, seen: set[str]) -> str:
        if line.strip() == "…":
            return r"(?:[^\n]*\n)*"

        def id_pattern(match: re.Match[str]) -> str:
            name = match[1]
            if name in self._ids:
                return re.escape(self._ids[name])
            again = name in seen
            seen.add(name)
            return f"(?P={name})" if again else f"(?P<{name}>[A-Za-z0-9]{{32}})"

        escaped = re.escape(_squeezed(line)).replace("…", "[^\n]*")
        return _ID.sub(id_pattern, escaped) + "\n"


def _is_ours(words: list[str]) -> bool:
    """Whether a command is one of ours that a process need not have to itself."""
    return bool(words) and words[0] in _PROGRAMS and words[1] != "demo"


def is_installed(tool: str) -> bool:
    """Whether a `FOREIGN` tool is there."""
    return (FOREIGN[tool] / tool).exists()


def redirect(patch: pytest.MonkeyPatch, server: Server) -> None:
    """Let clients of this process who want the default address have *server* instead."""

    def endpoint(url: str | connect.Endpoint, **options: Any) -> connect.Endpoint:
        found = connect.endpoint(url, **options)
        default = found.path is None and ("127.0.0.1", connect.PORT) in found.nodes
        return replace(found, nodes=(("127.0.0.1", server.port),)) if default else found

    patch.setattr(sync, "endpoint", endpoint)
    patch.setattr(aio, "endpoint", endpoint)


def _made(words: list[str]) -> list[str]:
    """Return the command that ``make run`` gives; nothing for a target that only must exist."""
    targets = dict(_TARGET.findall((ROOT / "Makefile").read_text()))
    target, *rest = words[1:] or ["help"]
    if target not in targets:
        raise Untrue(f"the Makefile has no target {target!r}")
    if target != "run":
        return []
    if "tambo serve $(ARGS)" not in targets["run"]:
        raise Untrue("`make run` is not `tambo serve $(ARGS)` any more")
    args = [word.removeprefix("ARGS=") for word in rest if word.startswith("ARGS=")]
    return ["tambo", "serve", *shlex.split(" ".join(args))]


def _default_ports(said: str, words: list[str]) -> str:
    """Return what ``tambo serve`` says, with the ports that the page expects."""
    ports = {"redis": "6379", "gomq": "10001", "kqueue": "8000", "http": "8090"}
    for door in ports:
        if (flag := f"--{door}-port") in words:
            ports[door] = words[words.index(flag) + 1]
    for door, port in ports.items():
        # A door's line begins with its name.
        lines = [line for line in said.splitlines() if line.startswith(f"{door} ")]
        for address in _ADDRESS.findall("".join(lines)):
            said = said.replace(address, f"127.0.0.1:{port}")
    # On the default ports, the demo needs no flags.
    return _DEMO_FLAG.sub("", said)


def _squeezed(line: str) -> str:
    return " ".join(line.split())
