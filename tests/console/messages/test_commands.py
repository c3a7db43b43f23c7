"""Commands can be pasted into a shell, whatever the names are."""

from __future__ import annotations

import subprocess

import pytest

from tambomq.console.messages.commands import (
    explain_command,
    on_server,
    redis_commands,
    shell_command,
)
from tambomq.console.model import QueueRef
from tambomq.store.endpoint import endpoint
from tests.console.messages.conftest import HOSTILE


@pytest.mark.parametrize(
    "word",
    ["plain", "it's", '$HOME `id` \\ "q"', HOSTILE, "\x1b[2J\n\t'\\x41", "\u202eabc", "", "-n"],
)
def test_a_shell_reads_each_word_as_it_was(word: str) -> None:
    command = shell_command("printf", "%s|%s", word, "end")
    assert command is not None
    assert command.isprintable()
    assert subprocess.check_output(("bash", "-c", command)).decode() == f"{word}|end"


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_a_word_that_no_shell_can_hold_leaves_its_command_out(word: str) -> None:
    steps = (("one", ("GET", word)), ("two", ("GET", "b")))
    assert redis_commands(steps) == [("two", "redis-cli GET b")]


def test_an_id_is_never_taken_for_an_option() -> None:
    assert explain_command(QueueRef("rsmq", "q"), "--json")[0][1] == (
        "tambo explain rsmq:q -- --json"
    )


@pytest.mark.parametrize(
    ("url", "flags", "option"),
    [
        ("redis://127.0.0.1:6379", "", ""),
        ("redis://127.0.0.1:7000/2", " -p 7000 -n 2", " --redis-url redis://127.0.0.1:7000/2"),
        (
            "rediss://ada:secret@queues.example:6380",
            " -h queues.example -p 6380 --user ada --tls",
            " --redis-url rediss://queues.example:6380/0",
        ),
        ("redis://[::1]:6379", " -h ::1", " --redis-url 'redis://[::1]:6379/0'"),
        ("unix:///run/a redis.sock", " -s '/run/a redis.sock'", ""),
        ("redis://a:6379,b:6379", " -h a -c", " --redis-url redis://a:6379,b:6379/0"),
    ],
)
def test_commands_ask_the_server_that_was_asked(url: str, flags: str, option: str) -> None:
    commands = [
        *redis_commands([("one", ("GET", "a"))]),
        *explain_command(QueueRef("rsmq", "q"), "1"),
    ]
    asked = [command for _, command in on_server(commands, endpoint(url))]
    assert asked[0] == f"redis-cli{flags} GET a"
    assert asked[1].startswith(f"tambo explain{option} ")
    assert asked[1].endswith(" rsmq:q 1")
    assert not any("secret" in command for command in asked)
