"""``tambo top`` as a command, and driven by keys in a terminal of 80 columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.cli.main import tambo
from tambomq.rsmq import Rsmq
from tests.cli.panes import Pane, pane_of
from tests.cli.running import COMMAND, starting
from tests.cli.transcript import Done, call
from tests.servers import Server, binaries

NO_HTTP = ("--http-url", "http://127.0.0.1:1")
EVIL = "evil\x1b[31m\u202e"


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with three queues."""
    with Server(binaries.valkey()) as server:
        with Rsmq(server.url) as rsmq:
            rsmq.create_queue("orders")
            rsmq.send_messages("orders", ["one", "two"])
        for name in ("mails", EVIL):
            with BlockingQueue(name, redis_url=server.url) as queue:
                queue.add_bulk([{"name": "send", "data": n} for n in range(5)])
        yield server


def top(url: str, *args: str) -> Done:
    return call(tambo, "tambo", "top", "--redis-url", url, *NO_HTTP, *args, url=url)


def test_once_prints_the_numbers_and_exits(server: Server) -> None:
    result = top(server.url, "--once", "--json", "--sort", "name")
    assert result.code == 0, result
    found = json.loads(result.out)
    assert [(row["queue"], row["depth"]) for row in found["queues"]] == [
        (f"chasqui:{EVIL}", 5),
        ("chasqui:mails", 5),
        ("rsmq:orders", 2),
    ]
    assert (found["redis"]["ok"], found["totals"]["backlog"]) == (True, 12)
    result = top(server.url, "--once")
    assert "chasqui:evil\\x1b[31m\\u202e" in result.out
    assert "\x1b" not in result.out


def test_server_that_is_away_is_a_failure() -> None:
    result = top("redis://127.0.0.1:1", "--once")
    assert (result.code, result.out) == (1, "")
    assert "`tambo serve` starts one" in result.err


def test_server_that_refuses_the_user_is_not_taken_for_one_that_is_away(server: Server) -> None:
    with redis.Redis.from_url(server.url) as admin:
        rights = ("on", ">secret", "+@all", "~rsmq:*", "&*")
        admin.execute_command("ACL", "SETUSER", "till", *rights)
    result = top(server.url.replace("//", "//till:secret@"), "--once")
    assert (result.code, result.out) == (1, "")
    assert "NOPERM" in result.err
    assert "starts one" not in result.err


def test_top_into_a_pipe_needs_the_option_once() -> None:
    result = top("redis://127.0.0.1:1")
    assert result.code == 2
    assert "--once" in result.err


def test_server_is_not_asked_too_often() -> None:
    result = top("redis://127.0.0.1:1", "--every", "10ms")
    assert (result.code, "500ms" in result.err) == (2, True)


def test_json_without_once_is_a_line_for_each_refresh(server: Server, tmp_path: Path) -> None:
    words = ("top", "--redis-url", server.url, *NO_HTTP, "--json", "--every", "500ms")
    with starting(tmp_path) as start:
        running = start(*words)
        running.says(r"(\{.*\n){3}")
        assert running.stop() == 130
        assert all(json.loads(line)["queues"] for line in running.out.splitlines())


@pytest.fixture
def pane(server: Server, tmp_path: Path) -> Iterator[Pane]:
    words = ("top", "--redis-url", server.url, *NO_HTTP, "--every", "500ms")
    with pane_of(tmp_path, *COMMAND, *words) as made:
        yield made


@pytest.mark.slow
def test_keys_sort_and_quit(pane: Pane, server: Server) -> None:
    pane.shows(r"^  chasqui:evil\\x1b\[31m\S* +5 .*^  chasqui:mails +5 .*^  rsmq:orders +2 ")
    pane.keys("n")
    pane.shows(r"^  chasqui:evil.*^  chasqui:mails.*^  rsmq:orders")
    pane.keys("r")
    pane.shows(r"^  rsmq:orders.*^  chasqui:mails.*^  chasqui:evil")
    pane.keys("d", "Up", "Left")
    with Rsmq(server.url) as rsmq:
        rsmq.send_messages("orders", ["x"] * 50)
    pane.shows(r"^. rsmq:orders +52 .*chasqui:")
    pane.keys("q")
    pane.shows(r"^ended with 0$")


@pytest.mark.slow
def test_terminal_may_change_its_size(pane: Pane) -> None:
    pane.shows("rsmq:orders")
    pane.run("resize-window", "-x", "60", "-y", "8")
    pane.shows(r"rsmq:orders +2 +0 +0 +0 +0\n")
    assert max(map(len, pane.lines())) <= 60
    pane.run("resize-window", "-x", "140", "-y", "30")
    pane.shows(r"drained in +size +state")


@pytest.mark.slow
def test_a_lost_server_is_reported_and_found_again(pane: Pane, server: Server) -> None:
    pane.shows(r"rsmq:orders +2 ")
    server.kill()
    pane.shows(r"Redis is lost for .*rsmq:orders +2 ")
    server.restart()
    pane.shows(r"0 queues  in 0/s.*no queue yet")
    pane.keys("C-c")
    pane.shows(r"^ended with 0$")
