from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest
import redis

from tambomq.cli.rsmq.rsmqctl import rsmqctl
from tambomq.rsmq import Rsmq
from tests.cli.transcript import VECTORS, Done, call, play, steps
from tests.servers.run import Server

Ctl = Callable[..., Done]

_MAIN = "import sys; from tambomq.cli.rsmq.rsmqctl import main; main()"


@pytest.fixture
def ctl(server: Server) -> Ctl:
    """``rsmqctl`` in this process, on an empty server."""
    return partial(call, rsmqctl, "rsmqctl", url=server.url)


def process(url: str, *args: str | bytes, code: str = _MAIN) -> subprocess.CompletedProcess[bytes]:
    """``rsmqctl`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env={**os.environ, "REDIS_URL": url},
        capture_output=True,
        check=False,
        timeout=30,
    )


def test_it_prints_what_the_tool_it_replaces_printed(ctl: Ctl) -> None:
    def shell(command: list[str]) -> list[str]:
        assert command[0] == "rsmqctl"
        return ctl(*command[1:]).lines

    values = play(VECTORS / "rsmqctl.txt", {"$": shell})
    assert len(steps(VECTORS / "rsmqctl.txt")) == 29
    assert values["ID"] != values["ID2"]


def test_a_process_keeps_result_fault_and_exit_code_apart(server: Server) -> None:
    made = process(server.url, "queue", "create", "-n", "orders")
    assert (made.returncode, made.stdout, made.stderr) == (0, b"", b"")
    again = process(server.url, "queue", "create", "-n", "orders")
    expected = b"Queue already exists: orders\n"
    assert (again.returncode, again.stdout, again.stderr) == (1, b"", expected)
    listed = process(server.url, "queue", "list")
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, b'["orders"]\n', b"")


def test_the_server_option_wins_over_the_variable(server: Server) -> None:
    done = process("redis://127.0.0.1:1", "-r", server.url, "queue", "list")
    assert (done.returncode, done.stdout) == (0, b"[]\n")


def test_server_that_is_not_there_is_one_line_and_exit_1() -> None:
    done = process("redis://:secret@127.0.0.1:1", "queue", "list")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
    assert b"127.0.0.1:1" in done.stderr
    assert b"secret" not in done.stderr


def test_start_imports_nothing_slow(server: Server) -> None:
    code = _MAIN.replace("main()", "sys.argv[1:] = ['queue', 'list']; main()").replace(
        "import sys;", "import atexit, sys; atexit.register(lambda: print(*sys.modules));"
    )
    done = process(server.url, code=code)
    assert done.stdout.startswith(b"[]")
    assert {b"rich", b"redis", b"grpc", b"pyspark", b"uvloop"}.isdisjoint(done.stdout.split())


def test_the_namespace_is_an_option(ctl: Ctl, db: redis.Redis) -> None:
    assert ctl("--ns", "shop", "queue", "create", "-n", "orders").code == 0
    assert db.smembers("shop:QUEUES") == {b"orders"}
    assert ctl("queue", "list").out == "[]\n"


# ── numbers and names ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        (("-m", "10"), "maxsize must be between 1024 and 65536 bytes, or -1 for no limit"),
        (("-t", "-1"), "vt must be between 0 and 9999999 seconds"),
        (("-d", "10000000"), "delay must be between 0 and 9999999 seconds"),
    ],
)
def test_queue_with_an_impossible_number_is_not_made(
    ctl: Ctl, option: tuple[str, str], rule: str
) -> None:
    done = ctl("queue", "create", "-n", "big", *option)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"Failed to create queue: big: {rule}, not {option[1]}\n"
    assert ctl("queue", "list").out == "[]\n"


def test_queue_for_larger_messages_than_there_are_gets_the_largest(ctl: Ctl) -> None:
    done = ctl("queue", "create", "-n", "big", "-m", "70000")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert json.loads(ctl("queue", "describe", "-n", "big").out)["maxsize"] == 65536


def test_queue_without_a_limit_can_be_made(ctl: Ctl) -> None:
    assert ctl("queue", "create", "-n", "big", "-m", "-1").code == 0
    assert json.loads(ctl("queue", "describe", "-n", "big").out)["maxsize"] == -1


@pytest.mark.parametrize("name", ["bad:name", "a b", "", "ñ", "QUEUES", "x" * 161])
def test_an_invalid_queue_name_is_refused_on_creation(ctl: Ctl, name: str) -> None:
    done = ctl("queue", "create", "-n", name)
    assert (done.code, done.out, done.err) == (1, "", f"Failed to create queue: {name}\n")


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "describe"),
        ("queue", "delete"),
        ("message", "send", "-m", "x"),
        ("message", "receive"),
        ("message", "pop"),
        ("message", "delete", "-i", "x"),
        ("message", "visibility", "-i", "x", "-t", "1"),
    ],
)
@pytest.mark.parametrize("name", ["nope", "bad:name"])
def test_a_missing_queue_is_reported_first(ctl: Ctl, command: tuple[str, ...], name: str) -> None:
    done = ctl(*command, "-n", name)
    assert (done.code, done.out, done.err) == (1, "", f"No such queue: {name}\n")


def test_name_with_a_line_end_stays_on_one_line(ctl: Ctl) -> None:
    assert ctl("queue", "describe", "-n", "a\n\x1b[31mb").err == "No such queue: a\\n\\x1b[31mb\n"


def test_verbose_shows_the_reason_before_the_line(ctl: Ctl) -> None:
    done = ctl("-v", "queue", "create", "-n", "bad:name")
    assert done.err.startswith("Traceback")
    assert "1 to 160 of A-Z" in done.err
    assert done.err.endswith("\nFailed to create queue: bad:name\n")


@pytest.mark.parametrize("id", ["nosuchid", "k" * 32])
def test_unknown_message_is_neither_hidden_nor_deleted(ctl: Ctl, rsmq: Rsmq, id: str) -> None:
    rsmq.create_queue("orders")
    hide = ctl("message", "visibility", "-n", "orders", "-i", id, "-t", "600")
    assert hide.err == f"Failed to change visibility timeout for message ID: {id}\n"
    delete = ctl("message", "delete", "-n", "orders", "-i", id)
    assert delete.err == f"Failed to delete message ID: {id}\n"
    assert hide.code == delete.code == 1


# ── faults of the tool it replaces ───────────────────────────────────────────


def test_send_without_a_delay_uses_the_queues_own(ctl: Ctl, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders", delay=100)
    assert ctl("message", "send", "-n", "orders", "-m", "later").code == 0
    assert ctl("message", "receive", "-n", "orders").out == "No messages on queue: orders\n"
    assert ctl("message", "send", "-n", "orders", "-m", "now", "-d", "0").code == 0
    assert json.loads(ctl("message", "receive", "-n", "orders").out)["message"] == "now"


def test_receive_with_zero_hides_for_no_time(ctl: Ctl, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders")
    rsmq.send_message("orders", "x")
    for rc in (1, 2):
        assert json.loads(ctl("message", "receive", "-n", "orders", "-t", "0").out)["rc"] == rc


@pytest.mark.parametrize("command", ["receive", "pop"])
def test_body_that_is_not_text_is_printed_and_nothing_is_lost(
    ctl: Ctl, rsmq: Rsmq, command: str
) -> None:
    rsmq.create_queue("orders")
    id = rsmq.send_message("orders", b"\xffabc")
    shown = json.loads(ctl("message", command, "-n", "orders").out)
    assert list(shown) == ["id", "message", "rc", "ts", "base64"]
    assert (shown["id"], shown["message"], shown["base64"]) == (id, "\\xffabc", "/2FiYw==")


def test_text_is_printed_as_ascii_json(ctl: Ctl, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders")
    id = rsmq.send_message("orders", 'ü"\x1b')
    out = ctl("message", "receive", "-n", "orders").out
    assert out.startswith(f'{{"id": "{id}", "message": "\\u00fc\\"\\u001b", "rc": 1, "ts": ')


def test_bytes_of_the_command_line_are_sent_as_they_are(server: Server, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders")
    assert process(server.url, "message", "send", "-n", "orders", "-m", b"\xff\xc3").returncode == 0
    (found,) = rsmq.peek_messages("orders")
    assert found.body == b"\xff\xc3"


def test_body_that_is_too_long_is_not_sent_nor_repeated(ctl: Ctl, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders", maxsize=1024)
    done = ctl("message", "send", "-n", "orders", "-m", "x" * 1025)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "Failed to send message: "
        "a message of 1025 bytes exceeds the 1024 that queue 'orders' takes\n"
    )


def test_it_starts_without_asyncio() -> None:
    code = "import sys, tambomq.cli.rsmq.rsmqctl; print('asyncio' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert result.stdout == "False\n"
