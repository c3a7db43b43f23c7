"""The output of commands: a changing line on a terminal, whole lines in a pipe, or JSON."""

from __future__ import annotations

import json
import subprocess

import pytest
import redis

from tambomq.rsmq import Rsmq
from tests.pipeline.dying_letters import add_dead_letters
from tests.pipeline.killing import COMMAND
from tests.pipeline.terminal import screen, sitting
from tests.serve.processes import clean_environment
from tests.servers import Server

COUNT = 5000
NARROW = 60
COLOUR = "\x1b[3"
CONTROL = "\x1b"


@pytest.fixture
def filled(rsmq: Rsmq) -> Rsmq:
    """A queue with some batches of messages."""
    rsmq.create_queue("a")
    rsmq.send_messages("a", [b"m%d" % n for n in range(COUNT)])
    return rsmq


MOVE = ("migrate", "rsmq:a", "gomq:b", "--wait", "0s")


def test_a_screen_is_what_was_drawn_last() -> None:
    assert screen("one\r\ntwo\x1b[1A\r\x1b[2Kthree\r\n\x1b[32mfour\x1b[0m") == ["three", "four"]


@pytest.mark.parametrize("columns", [NARROW, 120])
def test_a_bar_stays_on_its_line_and_goes(server: Server, filled: Rsmq, columns: int) -> None:
    with sitting(server.url, *MOVE, columns=columns) as terminal:
        assert terminal.end() == 0
        drawn, lines = terminal.drawn, terminal.lines
    assert f"{COUNT} messages" in drawn
    assert COLOUR in drawn
    bars = [line for line in drawn.replace("\r", "\n").splitlines() if "moving" in line]
    assert max(len(screen(bar)[0]) for bar in bars) <= columns
    assert lines[0] == f"moved {COUNT} messages from rsmq:a to gomq:b"
    assert lines[1].startswith(f"{COUNT} left and {COUNT} arrived since it began")
    assert lines[2:] == [""]


def test_colours_can_be_disabled(server: Server, filled: Rsmq) -> None:
    with sitting(server.url, *MOVE, NO_COLOR="1") as terminal:
        assert terminal.end() == 0
        assert f"{COUNT} messages" in terminal.drawn
        assert COLOUR not in terminal.drawn


def test_a_narrow_terminal_wraps_cells_and_loses_none(server: Server, db: redis.Redis) -> None:
    add_dead_letters(db, 3)
    with sitting(server.url, "dlq", columns=NARROW) as terminal:
        assert terminal.end() == 0
        lines = terminal.lines
    assert max(map(len, lines)) <= NARROW
    assert "".join(line[:8].strip() for line in lines[1:]).startswith("chasqui:orders")


def test_a_pipe_gets_lines_without_control_characters(server: Server, filled: Rsmq) -> None:
    out, err = piped(server, *MOVE)
    assert out.splitlines()[0] == f"moved {COUNT} messages from rsmq:a to gomq:b"
    assert (CONTROL in out, err) == (False, "")


@pytest.mark.parametrize(
    "words",
    [
        MOVE,
        (*MOVE, "--dry-run"),
        ("audit",),
        ("audit", "--rules"),
        ("dlq",),
        ("dlq", "redrives"),
        ("leases", "list"),
        ("sql", "--tables"),
    ],
    ids=" ".join,
)
def test_json_is_all_that_is_printed(
    server: Server, filled: Rsmq, db: redis.Redis, words: tuple[str, ...]
) -> None:
    add_dead_letters(db, 3)
    with sitting(server.url, *words, "--json", columns=NARROW) as terminal:
        assert terminal.end() == 0
        drawn = terminal.drawn
    assert CONTROL not in drawn
    assert [json.loads(line) for line in drawn.splitlines()]


@pytest.mark.parametrize(("queues", "said"), [(0, "0 queues"), (1, "1 queue"), (2, "2 queues")])
def test_singular_and_plural_are_distinguished(
    server: Server, rsmq: Rsmq, queues: int, said: str
) -> None:
    for n in range(queues):
        rsmq.create_queue(f"q{n}")
    assert piped(server, "audit") == (f"Looked at {said}: all is well.\n", "")


def test_one_message_is_moved_and_one_stays(server: Server, rsmq: Rsmq) -> None:
    rsmq.create_queue("a")
    rsmq.send_messages("a", [b"held", b"free"])
    rsmq.receive_message("a", vt=600)
    out, _ = piped(server, *MOVE)
    moved, compared, stayed = out.splitlines()
    assert moved == "moved 1 message from rsmq:a to gomq:b"
    assert compared.startswith("1 left and 1 arrived since it began")
    assert stayed == "1 stays: it is in flight; run it again later"


def piped(server: Server, *words: str) -> tuple[str, str]:
    """Run a command whose output another process reads; return both."""
    env = {**clean_environment(), "TAMBO_REDIS_URL": server.url}
    done = subprocess.run([*COMMAND, *words], env=env, capture_output=True, check=True, text=True)
    return done.stdout, done.stderr
