"""Runner for the code blocks of a documentation page: executes them and compares their output.

=========== ===========================================================================
fence       what is done with it
=========== ===========================================================================
python      executed; the blocks of a page share their names. What is printed must be
            the comments behind the ``print`` calls, in their order.
console     each line that begins with ``$`` is a command, the lines below are its
            output. It must exit 0, unless ``$ echo $?`` follows.
sh          commands to copy, without prompts: no comments, no unquoted patterns, so
            that any shell takes them. A ``text`` block right behind it is the output.
toml        must be settings.
text        illustrations.
=========== ===========================================================================

In expected output ``…`` stands for anything, on a line of its own for any lines; ``<ID>`` for a
message id, the same wherever it is repeated on the page, in commands too. Blanks count as one.
The address 127.0.0.1:6379 means the test's own server; for the brokers see `docs_brokers`. ``tambo
serve``, ``tambo console`` and ``make run`` are started on free ports, compared once they are ready,
and stopped. Other targets of make must exist and are not run; nor is what `NOT_RUN` names. Commands
of `FOREIGN` tools are run where these are installed, which `make interop` sees to.

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
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from tambomq.cli.main import tambo
from tambomq.cli.output import run as run_command
from tambomq.cli.rsmq.rsmqctl import rsmqctl
from tambomq.gomq import GomqClient
from tambomq.kqueue import Consumer, Producer
from tambomq.rsmq import Rsmq
from tambomq.settings import load as settings
from tambomq.store import aio, sync
from tambomq.store import endpoint as connect
from tambomq.store.server_url import PORT
from tests import docs_brokers
from tests.docs_blocks import Block, Untrue, blocks, copied, sessions
from tests.docs_brokers import PageBrokers
from tests.servers import Server, eventually

ROOT = Path(__file__).parents[1]
SHOWN = "127.0.0.1:6379"
ILLUSTRATIONS = {"text"}
NOT_RUN = {". .venv/bin/activate": "VENV := .venv"}
"""Commands that mean something in the reader's shell alone, and what of the Makefile they need."""

FOREIGN = {"buf": ROOT / "tests/peers/buf/node_modules/.bin"}
"""Tools of others that pages show, and where `scripts/peers` puts them."""

OWN_FILES = {"brokers", "examples", "output", "ready.json", ".local", ".cache"}
_ADDRESS = re.compile(r"127\.0\.0\.1:\d{4,5}\b")
_ID = re.compile(r"<(ID\d*)>")
_PRINTED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)
_TARGET = re.compile(r"^(\w+):.*\n((?:\t.*\n)*)", re.MULTILINE)
_PROGRAMS = {"tambo": tambo, "rsmqctl": rsmqctl}
_DEMO_FLAG = re.compile(r" \\\n +--\w+-(?:url|address) \S*127\.0\.0\.1:(?:6379|10001|8000)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NOT_EVERY_SHELL = re.compile(r"[*?\[]|(?:^|\s)#|/dev/tcp/")
_NEEDS_SHELL = re.compile(r"[|&;<>$`]|^\w+=")
_SHELL_WORD = re.compile(r"[|&;<>()$`]+")


class Page:
    """A page that is run against *server*, with *home* as the reader's directory.

    *in_process*: commands of ours are called in this process. The caller makes
    `tambomq.spark.session` return a session that is running. *alone*: each Python block has names
    of its own. *empty*: each block begins with an empty directory and an empty server too, as for a
    reader who copies it without the others.
    """

    def __init__(
        self,
        name: str,
        server: Server,
        home: Path,
        *,
        in_process: bool = False,
        alone: bool = False,
        empty: bool = False,
    ) -> None:
        self._name, self._home, self._in_process, self._alone = name, home, in_process, alone
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
        self._brokers: PageBrokers | None = None
        self._skipped = False
        self._folder, self._empty = home, empty
        self.left: set[str] = set()
        """Keys without an expiry and files that a block of an *empty* page has left."""
        self._open_home(home)

    def _open_home(self, home: Path) -> None:
        home.mkdir(exist_ok=True)
        (home / "examples").symlink_to(ROOT / "examples")
        self._home, self._env["HOME"] = home, str(home)

    def run(self, text: str) -> None:
        """Run all blocks of the page; raise `Untrue` for what does not happen."""
        with contextlib.ExitStack() as stack:
            if docs_brokers.are_needed(text):
                at = self._home / "brokers"
                self._brokers = stack.enter_context(docs_brokers.opened(self._server, at))
            stack.callback(self._close_clients)
            for block in blocks(text):
                if self._empty:
                    self._begin_anew(block)
                self._run(block)
                if self._empty:
                    self._note_what_is_left()

    def _begin_anew(self, block: Block) -> None:
        """Forget what earlier blocks have left, here and on the server."""
        self._close_clients()
        self._ids, self._names = {}, {"__name__": "__page__"}
        self._open_home(self._folder / f"line-{block.line}")
        with redis.Redis.from_url(self._server.url) as admin:
            admin.flushall()

    def _note_what_is_left(self) -> None:
        with redis.Redis.from_url(self._server.url) as client:
            self.left |= {str(key) for key in client.scan_iter() if client.ttl(key) < 0}
        self.left |= {each.name for each in self._home.iterdir()} - OWN_FILES

    def _close_clients(self) -> None:
        for value in self._names.values():
            if isinstance(value, Rsmq | GomqClient | Producer | Consumer):
                value.close()

    def _run(self, block: Block) -> None:
        location = f"{self._name}:{block.line}"
        match block.language:
            case "python":
                self._python(block, location)
            case "console":
                if not block.text.startswith("$ "):
                    raise Untrue(f"{location}: a console block begins with a command")
                for command, output in sessions(block.text):
                    self._command(command, output, location)
                if self._exit_code:
                    raise Untrue(f"{location}: the last command exits {self._exit_code}")
            case "sh":
                self._copy(block, location)
            case "toml":
                (self._home / "page.toml").write_text(block.text)
                settings.load(self._home / "page.toml", env={})
            case language if language not in ILLUSTRATIONS:
                raise Untrue(f"{location}: nobody knows how to run {language or 'a bare block'!r}")

    def _copy(self, block: Block, location: str) -> None:
        """Run commands as they are when the reader pastes them into a shell."""
        commands = copied(block.text)
        if any(_NOT_EVERY_SHELL.search(_QUOTED.sub("", command)) for command in commands):
            raise Untrue(f"{location}: a comment, or an unquoted pattern: not every shell takes it")
        if any(_NEEDS_SHELL.search(command) for command in commands):
            results = [self._shell(f"set -e; {block.text}")]
        else:
            results = [self._result(command, location) or "" for command in commands]
        self._compare(block.output, "".join(results), location)
        if self._exit_code:
            raise Untrue(f"{location}: exits {self._exit_code}")

    def _python(self, block: Block, location: str) -> None:
        source = "\n" * (block.line - 1) + self._real(block.text)
        printed = io.StringIO()
        if self._alone:
            self._close_clients()
            self._names = {"__name__": "__page__"}
        at = contextlib.chdir(self._home) if self._empty else contextlib.nullcontext()
        with contextlib.redirect_stdout(printed), at:
            code = compile(source, self._name, "exec", dont_inherit=True)
            exec(code, self._names)
        expected = "".join(f"{line}\n" for line in _PRINTED.findall(block.text))
        self._compare(expected, self._shown(printed.getvalue()), location)

    def _command(self, command: str, expected: str, location: str) -> None:
        if (output := self._result(command, location)) is not None:
            self._compare(expected, output, f"{location}: {command}")

    def _result(self, command: str, location: str) -> str | None:
        """Return the output of *command*; None if it is not run here."""
        if self._exit_code and command != "echo $?":
            raise Untrue(f"{location}: exit {self._exit_code} before {command!r}")
        words = shlex.split(command)
        location = f"{location}: {command}"
        if words[0] in FOREIGN and not is_installed(words[0]):
            self._skipped = True
            return None
        if self._skipped and words[0] not in FOREIGN:
            # It shows what the tool has done.
            self._skipped = False
            return None
        if words[0] == "make":
            words = _made(words)
        elif command in NOT_RUN:
            if NOT_RUN[command] not in (ROOT / "Makefile").read_text():
                raise Untrue(f"{location}: the Makefile has no {NOT_RUN[command]}")
            words = []
        if words[0:1] == ["tambo"] and words[1:2] in (["serve"], ["console"]):
            return self._serve(words)
        if self._in_process and _is_ours(words):
            return self._call(command, location)
        return self._shell(command) if words else None

    def _call(self, command: str, location: str) -> str:
        """Return what a command of ours says that is called in this process."""
        lexer = shlex.shlex(self._filled(command), posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        program, *words = lexer
        if any(_SHELL_WORD.fullmatch(word) for word in words):
            raise Untrue(f"{location}: where Spark is used, commands stand alone, without a pipe")
        env = {name: self._env.get(name) for name in {*self._env, *os.environ}}
        runner = CliRunner(env=env)
        with contextlib.chdir(self._home), runner.isolation() as (_, _, output):
            self._exit_code = run_command(_PROGRAMS[program], program, words)
            sys.stdout.flush()
            sys.stderr.flush()
        return self._shown(output.getvalue().decode())

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
        return self._brokers.real(text) if self._brokers else text

    def _shown(self, text: str) -> str:
        """Return what happened, with the addresses that the page shows."""
        text = text.replace(self._address, SHOWN)
        return self._brokers.shown(text) if self._brokers else text

    def _serve(self, words: list[str]) -> str:
        """Return what the command says when it is ready, or when it ends without ever being so."""
        ready, output = self._home / "ready.json", self._home / "output"
        words = [word.replace(SHOWN, self._address) for word in words]
        own = [] if "--redis-url" in words else ["--redis-port", "0"]
        listening = ("gomq", "kqueue", "http") if words[1] == "serve" else ("http",)
        own += [word for component in listening for word in (f"--{component}-port", "0")]
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
            printed = output.read_text().replace(self._address, SHOWN)
        finally:
            process.send_signal(signal.SIGINT)
            self._exit_code = process.wait(60)
        return _default_ports(printed.replace(str(self._home), "~"), words)

    def _compare(self, expected: str, actual: str, location: str) -> None:
        seen: set[str] = set()
        pattern = "".join(self._pattern(line, seen) for line in expected.rstrip().splitlines())
        output = "".join(f"{_squeezed(line)}\n" for line in actual.rstrip().splitlines())
        if (match := re.fullmatch(pattern, output)) is None:
            raise Untrue(f"{location}\n--- the page says\n{expected}\n--- what happens\n{actual}")
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
    """Redirect clients of this process from the default address to *server*."""

    def endpoint(url: str | connect.Endpoint, **options: Any) -> connect.Endpoint:
        found = connect.endpoint(url, **options)
        default = found.path is None and ("127.0.0.1", PORT) in found.nodes
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


def _default_ports(output: str, words: list[str]) -> str:
    """Return what ``tambo serve`` says, with the ports that the page expects."""
    ports = {"redis": "6379", "gomq": "10001", "kqueue": "8000", "http": "8090"}
    for component in ports:
        if (flag := f"--{component}-port") in words:
            ports[component] = words[words.index(flag) + 1]
    for component, port in ports.items():
        # A component's line begins with its name.
        lines = [line for line in output.splitlines() if line.startswith(f"{component} ")]
        for address in _ADDRESS.findall("".join(lines)):
            output = output.replace(address, f"127.0.0.1:{port}")
    # On the default ports, the demo needs no flags.
    return _DEMO_FLAG.sub("", output)


def _squeezed(line: str) -> str:
    return " ".join(line.split())
