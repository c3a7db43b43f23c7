"""Completion of commands, options and queue names, by click and by real shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tambomq.chasqui import BlockingQueue
from tambomq.cli import main as tambo_main
from tambomq.cli.completion import PROG, VARIABLE, BashQueues, FishQueues
from tambomq.cli.main import tambo
from tambomq.rsmq import Rsmq
from tests.cli.panes import pane_of
from tests.cli.transcript import call
from tests.serve.processes import clean_environment
from tests.servers import Server, binaries

UNREACHABLE = "redis://127.0.0.1:1"
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with queues, one of which has a name that no shell should get."""
    with Server(binaries.valkey()) as server:
        with Rsmq(server.url) as rsmq:
            rsmq.create_queue("orders")
        for name in ("mails", "metrics", "$(touch x)"):
            with BlockingQueue(name, redis_url=server.url) as queue:
                queue.add("send", 1)
        yield server


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with ``tambo`` in it."""
    made = tmp_path / "bin" / "tambo"
    made.parent.mkdir()
    made.write_text(f"#!{sys.executable}\nfrom tambomq.cli.main import main\nmain()\n")
    made.chmod(0o755)
    return made.parent


def offered(*args: str, incomplete: str = "") -> list[str]:
    made = BashQueues(tambo, {}, PROG, VARIABLE)
    return [item.value for item in made.get_completions([*args], incomplete)]


def test_commands_are_offered_without_importing_them(program: Path) -> None:
    code = "import sys; from tambomq.cli.completion import *; from tambomq.cli.main import tambo\n"
    code += "items = BashQueues(tambo, {}, PROG, VARIABLE).get_completions([], 'p')\n"
    code += "print([i.value for i in items], 'tambomq.cli.pipeline' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['pipeline'] False\n"
    assert set(offered()) == set(tambo_main.COMMANDS)


def test_options_and_choices_are_offered() -> None:
    assert "--sort" in offered("top", incomplete="--")
    assert offered("top", "--sort", incomplete="o") == ["out", "oldest"]
    assert offered("completion") == list(SHELLS)


def test_queue_names_are_offered_by_protocol(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAMBO_REDIS_URL", server.url)
    assert offered("chasqui", "counts") == ["mails", "metrics"]
    assert offered("chasqui", "counts", incomplete="me") == ["metrics"]
    assert offered("rsmq", "message", "peek", "-n") == ["orders"]
    assert offered("chasqui", "add", "mails") == [], "the name of a job is no queue"
    assert offered("pipeline", "leases", "list", incomplete="r") == ["rsmq:orders"]


def test_the_redis_url_option_wins_over_the_variable(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAMBO_REDIS_URL", UNREACHABLE)
    assert offered("chasqui", "counts", "--redis-url", server.url) == ["mails", "metrics"]
    assert offered("chasqui", "counts", f"--redis-url={server.url}") == ["mails", "metrics"]


def test_server_that_is_away_is_silent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for url in (UNREACHABLE, "nonsense://"):
        monkeypatch.setenv("TAMBO_REDIS_URL", url)
        assert offered("chasqui", "counts") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_script_names_the_program_and_the_variable(shell: str) -> None:
    result = call(tambo, "tambo", "completion", shell, url=UNREACHABLE)
    assert result.code == 0
    assert ("tambo" in result.out, VARIABLE in result.out) == (True, True)
    result = call(tambo, "tambo", "completion", shell, "--json", url=UNREACHABLE)
    assert json.loads(result.out)["shell"] == shell


def test_bash_completes(server: Server, program: Path, tmp_path: Path) -> None:
    """As bash does when Tab is pressed: the function of the script, with the words of the line."""
    script = r"""
eval "$(tambo completion bash)"
type complete >/dev/null && complete -p tambo
tab() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _tambo_completion tambo
    echo "${COMPREPLY[@]}"
}
tab tambo do
tab tambo top --onc
tab tambo chasqui counts m
tab tambo nothing x
"""
    done = _in_shell("bash", script, program, tmp_path, server.url)
    assert done.stdout.splitlines()[-4:] == ["doctor", "--once", "mails metrics", ""]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("shell", "shown"),
    [("zsh", "plain\nout\n_\nplain\noldest\n_\n"), ("fish", "plain,out\nplain,oldest\n")],
)
def test_zsh_and_fish_get_the_completions_they_ask_for(
    shell: str, shown: str, program: Path, tmp_path: Path
) -> None:
    """With the shell itself only where it is installed."""
    # zsh says which word it is, fish which text.
    current = {"zsh": "3", "fish": "o"}[shell]
    ask = f"COMP_WORDS='tambo top --sort o' COMP_CWORD={current} {VARIABLE}={shell}_complete tambo"
    assert _in_shell("sh", ask, program, tmp_path, UNREACHABLE).stdout == shown
    if shutil.which(shell):
        read = {"zsh": 'eval "$(tambo completion zsh)"', "fish": "tambo completion fish | source"}
        begin = "autoload -U compinit; compinit -u; " if shell == "zsh" else ""
        defined = "functions _tambo_completion"
        done = _in_shell(shell, f"{begin}{read[shell]}; {defined}", program, tmp_path, UNREACHABLE)
        assert "_tambo_completion" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "options", "read"),
    [
        ("bash", ("--norc",), 'eval "$(tambo completion bash)"'),
        ("zsh", ("-f",), 'autoload -U compinit; compinit -u; eval "$(tambo completion zsh)"'),
        ("fish", ("--no-config",), "tambo completion fish | source"),
    ],
)
def test_tab_completes_in_a_real_shell(
    shell: str, options: tuple[str, ...], read: str, server: Server, program: Path, tmp_path: Path
) -> None:
    env = _environment(program, tmp_path, server.url)
    with pane_of(tmp_path, shell, *options, "-i", env=env) as pane:
        pane.keys(f"{read}; echo re''ady", "Enter")
        pane.shows("^ready$")
        pane.keys("tambo chasqui cou", "Tab")
        pane.shows("tambo chasqui counts *$")
        pane.keys("met", "Tab")
        pane.shows("tambo chasqui counts metrics")


def test_help_with_a_comma_is_whole_in_fish() -> None:
    made = FishQueues(tambo, {}, PROG, VARIABLE)
    (item,) = made.get_completions([], "doct")
    assert "," in (item.help or "")
    assert made.format_completion(item).count(",") == 1


def _in_shell(
    shell: str, script: str, program: Path, folder: Path, url: str
) -> subprocess.CompletedProcess[str]:
    env = {**clean_environment(), **_environment(program, folder, url)}
    return subprocess.run(
        [shell, "-c", script], env=env, cwd=folder, capture_output=True, text=True, check=True
    )


def _environment(program: Path, folder: Path, url: str) -> dict[str, str]:
    path = f"{program}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "TAMBO_REDIS_URL": url, "HOME": str(folder)}
