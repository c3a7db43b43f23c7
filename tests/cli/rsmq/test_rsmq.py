from __future__ import annotations

import base64
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import redis

from tambomq.cli.main import tambo
from tambomq.cli.rsmq import rsmq as group
from tambomq.rsmq import Rsmq
from tests.cli.transcript import Done, call
from tests.servers.run import Server

Tambo = Callable[..., Done]

_MAIN = "from tambomq.cli.main import main; main()"
_BINARY = b"\xff\x00\x1b[31m"


@pytest.fixture
def run(server: Server) -> Tambo:
    """``tambo rsmq`` in this process, on an empty server."""
    return partial(call, tambo, "tambo", "rsmq", url=server.url)


@pytest.fixture
def orders(rsmq: Rsmq) -> Rsmq:
    """A client of a server that has the queue ``orders``."""
    rsmq.create_queue("orders")
    return rsmq


def parsed(done: Done) -> Any:
    """The one JSON document that a command printed."""
    assert done.err == ""
    return json.loads(done.out)


def leaves(command: click.Command, *path: str) -> list[tuple[tuple[str, ...], click.Command]]:
    """Each command of a group, with the words that lead to it."""
    if not isinstance(command, click.Group):
        return [(path, command)]
    return [leaf for name, each in command.commands.items() for leaf in leaves(each, *path, name)]


# ── all commands ─────────────────────────────────────────────────────────────


def test_there_are_fifteen_commands() -> None:
    assert sorted(" ".join(path) for path, _ in leaves(group)) == [
        "message delete",
        "message peek",
        "message pop",
        "message receive",
        "message send",
        "message visibility",
        "queue bound",
        "queue create",
        "queue delete",
        "queue describe",
        "queue list",
        "queue purge",
        "queue set",
        "queue stats",
        "queue sweep",
    ]


@pytest.mark.parametrize("path", [path for path, _ in leaves(group)], ids=" ".join)
def test_each_command_helps_with_an_example(run: Tambo, path: tuple[str, ...]) -> None:
    done = run(*path, "--help")
    assert done.code == 0
    assert f"  tambo rsmq {' '.join(path)}" in done.out.partition("Example:\n")[2]
    for option in ("--json", "--redis-url", "--ns"):
        assert option in done.out


def test_server_and_namespace_may_come_before_or_after_the_command(
    run: Tambo, server: Server, db: redis.Redis
) -> None:
    assert run("--ns", "shop", "queue", "create", "-n", "a").code == 0
    assert run("queue", "create", "-n", "b", "--ns", "shop", "--redis-url", server.url).code == 0
    assert db.smembers("shop:QUEUES") == {b"a", b"b"}


def test_process_keeps_result_fault_and_exit_code_apart(server: Server) -> None:
    for args, code, out, err in (
        (("queue", "list", "--json"), 3, b"[]\n", b""),
        (("queue", "list"), 3, b"", b"tambo: there are no queues\n"),
        (("queue", "describe", "-n", "nope"), 3, b"", b"tambo: queue 'nope' does not exist\n"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", _MAIN, "rsmq", *args],
            env={**os.environ, "TAMBO_REDIS_URL": server.url, "REDIS_URL": "redis://127.0.0.1:1"},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


# ── queues ───────────────────────────────────────────────────────────────────


def test_queue_is_made_described_and_changed(run: Tambo, rsmq: Rsmq) -> None:
    made = parsed(run("queue", "create", "-n", "orders", "-t", "60", "--json"))
    assert (made["queue"], made["vt"], made["delay"], made["maxsize"]) == (
        "orders",
        60.0,
        0.0,
        65536,
    )
    changed = parsed(run("queue", "set", "-n", "orders", "-d", "5", "-m", "-1", "--json"))
    assert (changed["vt"], changed["delay"], changed["maxsize"]) == (60.0, 5.0, -1)
    assert parsed(run("queue", "describe", "-n", "orders", "--json")) == changed
    assert rsmq.get_queue_attributes("orders").delay == 5
    assert "unlimited" in run("queue", "describe", "-n", "orders").out


def test_bounds_are_set_shown_and_removed(run: Tambo, orders: Rsmq) -> None:
    assert "no bound" in run("queue", "bound", "-n", "orders").out
    assert "bounds" not in parsed(run("queue", "describe", "-n", "orders", "--json"))
    options = ("--max-messages", "2", "--max-bytes", "100", "--ttl", "5m", "--overflow", "refuse")
    found = parsed(run("queue", "bound", "-n", "orders", *options, "--json"))
    assert (found["queue"], found["max_messages"], found["max_bytes"]) == ("orders", 2, 100)
    assert (found["message_ttl_s"], found["overflow"]) == (300, "refuse")
    assert parsed(run("queue", "describe", "-n", "orders", "--json"))["bounds"]["max_bytes"] == 100
    assert "messages expire after" in run("queue", "describe", "-n", "orders").out
    refused = run("message", "send", "-n", "orders", "-m", "1", "-m", "2", "-m", "3")
    assert refused.code == 1
    assert "raise max_messages" in refused.err
    gone = ("--max-messages", "-1", "--max-bytes", "-1", "--ttl", "-1")
    assert "no bound" in run("queue", "bound", "-n", "orders", *gone).out
    assert not orders.get_queue_attributes("orders").bounds.any


def test_expired_messages_are_swept(run: Tambo, orders: Rsmq, db: redis.Redis) -> None:
    orders.set_queue_bounds("orders", message_ttl_s=60)
    id = orders.send_message("orders", "old")
    db.zadd("rsmq:orders", {id: 1})
    done = run("queue", "sweep", "-n", "orders")
    assert done.out == "dead-lettered 1 message of the queue orders\n"
    again = parsed(run("queue", "sweep", "-n", "orders", "--json"))
    assert again == {"queue": "orders", "expired": 0}


def test_set_without_a_setting_changes_nothing(run: Tambo, orders: Rsmq) -> None:
    done = run("queue", "set", "-n", "orders")
    assert (done.code, done.out) == (1, "")
    assert "vt, delay and maxsize" in done.err


def test_list_shows_what_is_in_each_queue_and_which_cannot_be_read(
    run: Tambo, orders: Rsmq, db: redis.Redis
) -> None:
    orders.send_message("orders", "x", delay=100)
    db.sadd("rsmq:QUEUES", "gone", "a b")
    db.set("rsmq:odd:Q", "no hash")
    db.sadd("rsmq:QUEUES", "odd")
    found = {each.pop("queue"): each for each in parsed(run("queue", "list", "--json"))}
    assert (found["orders"]["msgs"], found["orders"]["hiddenmsgs"]) == (1, 1)
    assert [name for name in found if "error" in found[name]] == ["a b", "gone", "odd"]
    out = run("queue", "list").out
    assert out.splitlines()[1].split()[:3] == ["orders", "1", "1"]
    assert "gone: queue 'gone' does not exist\n" in out


@pytest.mark.parametrize("command", ["delete", "purge"])
def test_deleting_commands_need_a_confirmation(run: Tambo, orders: Rsmq, command: str) -> None:
    orders.send_message("orders", "x")
    refused = run("queue", command, "-n", "orders")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert orders.get_queue_attributes("orders").msgs == 1
    assert run("queue", command, "-n", "orders", "--yes").code == 0
    assert [orders.get_queue_attributes(q).msgs for q in orders.list_queues()] == (
        [0] if command == "purge" else []
    )


@pytest.mark.parametrize(("answer", "code", "left"), [(b"y\n", 0, 0), (b"n\n", 1, 2)])
def test_the_question_on_a_terminal_says_how_much_would_be_lost(
    server: Server, orders: Rsmq, answer: bytes, code: int, left: int
) -> None:
    orders.send_messages("orders", ["x", "y"])
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, "rsmq", "queue", "purge", "-n", "orders"],
        env={**os.environ, "TAMBO_REDIS_URL": server.url},
        stdin=theirs,
        capture_output=True,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    assert b"Delete all 2 messages of the queue orders?" in done.stderr
    assert done.returncode == code
    assert orders.get_queue_attributes("orders").msgs == left


def test_stats_of_a_sound_queue_speak_of_no_damage(run: Tambo, orders: Rsmq) -> None:
    orders.send_messages("orders", ["abc", "de"])
    orders.send_message("orders", "f", delay=100)
    orders.receive_message("orders")
    found = parsed(run("queue", "stats", "-n", "orders", "--json"))
    assert (found["visible"], found["in_flight"], found["delayed"]) == (1, 1, 1)
    assert (found["body_bytes"], found["damaged"]) == (6, False)
    assert "damaged" not in run("queue", "stats", "-n", "orders").out


def test_stats_show_damage_first_and_what_it_means(
    run: Tambo, orders: Rsmq, db: redis.Redis
) -> None:
    db.zadd("rsmq:orders", {"a" * 32: 1})
    db.hset("rsmq:orders:Q", mapping={"b" * 32: "lost", f"{'c' * 32}:rc": "1"})
    found = parsed(run("queue", "stats", "-n", "orders", "--json"))
    counts = ("members_without_body", "bodies_without_member", "stray_fields", "damaged")
    assert [found[count] for count in counts] == [1, 1, 1, True]
    lines = run("queue", "stats", "-n", "orders").out.splitlines()
    assert lines[0] == "This queue is damaged:"
    assert [line.split(maxsplit=1)[1].strip() for line in lines[2:5]] == [
        "listed without a body: receivers skip them",
        "bodies without a scheduled id: no consumer can receive them",
        "counts and reasons of no message: they only take up room",
    ]


# ── send ─────────────────────────────────────────────────────────────────────


def bodies(client: Rsmq) -> list[bytes]:
    """What is on ``orders``, in order."""
    return [message.body for message in client.peek_messages("orders", 10_000)]


def test_ids_are_printed_one_a_line(run: Tambo, orders: Rsmq) -> None:
    out = run("message", "send", "-n", "orders", "-m", "one", "-m", "two").out
    assert out.split() == [message.id for message in orders.peek_messages("orders")]
    assert bodies(orders) == [b"one", b"two"]


def test_body_comes_from_a_file_or_standard_input(run: Tambo, orders: Rsmq, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(_BINARY)
    assert run("message", "send", "-n", "orders", "--file", str(tmp_path / "body")).code == 0
    assert run("message", "send", "-n", "orders", "-", stdin=b"two\n").code == 0
    assert run("message", "send", "-n", "orders", "--file", "-", stdin=b"").code == 0
    assert bodies(orders) == [_BINARY, b"two\n", b""]


def test_body_is_given_as_base64(run: Tambo, orders: Rsmq) -> None:
    text = base64.b64encode(_BINARY).decode()
    sent = parsed(run("message", "send", "-n", "orders", "--base64", "-m", text, "--json"))
    assert sent == {"queue": "orders", "ids": [orders.peek_messages("orders")[0].id]}
    assert bodies(orders) == [_BINARY]


@pytest.mark.parametrize(
    "args",
    [(), ("-m", "x", "-"), ("-m", "x", "--lines"), ("--base64", "-m", "zz"), ("--file", "nowhere")],
)
def test_a_missing_repeated_or_invalid_body_is_a_usage_error(
    run: Tambo, orders: Rsmq, args: tuple[str, ...]
) -> None:
    assert run("message", "send", "-n", "orders", *args).code == 2
    assert bodies(orders) == []


def test_delay_and_realtime_are_passed_on(run: Tambo, orders: Rsmq, db: redis.Redis) -> None:
    with db.pubsub() as pubsub:  # type: ignore[no-untyped-call]
        pubsub.subscribe("rsmq:rt:orders")
        assert pubsub.get_message(timeout=30)
        args = ("-n", "orders", "-m", "x", "-d", "100.5", "--realtime")
        assert run("message", "send", *args).code == 0
        notice = pubsub.get_message(timeout=30)
    assert notice is not None
    assert notice["data"] == b"1"
    (found,) = orders.peek_messages("orders")
    assert found.visible_at - found.sent == 100_500


def test_each_line_is_a_message_and_order_is_kept(run: Tambo, orders: Rsmq) -> None:
    lines = [b"%d" % number for number in range(1234)]
    done = run("message", "send", "-n", "orders", "--lines", stdin=b"\n\n" + b"\n".join(lines))
    assert (done.code, done.out) == (0, "sent 1234 messages to the queue orders\n")
    assert bodies(orders) == lines


def test_sending_lines_stops_at_one_that_is_too_long_and_names_it(run: Tambo, orders: Rsmq) -> None:
    lines = [b"x"] * 700 + [b"y" * 70_000, b"z"]
    done = run("message", "send", "-n", "orders", "--lines", stdin=b"\n".join(lines))
    assert done.code == 1
    assert done.err.startswith("tambo: line 701: a message of 70000 bytes exceeds the 65536")
    assert done.err.endswith("; 500 messages were sent, up to line 500\n")
    assert len(bodies(orders)) == 500


def test_lines_are_given_as_base64(run: Tambo, orders: Rsmq) -> None:
    good = run(
        "message", "send", "-n", "orders", "--lines", "--base64", "--json", stdin=b"eA==\n/w=="
    )
    assert parsed(good) == {"queue": "orders", "sent": 2}
    assert bodies(orders) == [b"x", b"\xff"]
    bad = run("message", "send", "-n", "orders", "--lines", "--base64", stdin=b"eA==\n\nzz\n")
    assert bad.err.startswith("tambo: line 3 is not base64")


def test_progress_is_drawn_on_a_terminal_and_not_in_the_result(
    server: Server, orders: Rsmq, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_bytes(b"x\n" * 2000)
    ours, theirs = pty.openpty()
    words = ("rsmq", "message", "send", "-n", "orders", "--lines", "--file", "lines")
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, *words],
        env={**os.environ, "TAMBO_REDIS_URL": server.url, "TERM": "xterm"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=True,
    )
    drawn = os.read(ours, 65_536)
    os.close(ours)
    os.close(theirs)
    assert b"sending" in drawn
    assert done.stdout == b"sent 2000 messages to the queue orders\n"
