from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.cli.chasqui import chasqui
from tambomq.cli.main import tambo
from tests.cli.transcript import Done, call
from tests.servers.run import Server

Run = Callable[..., Done]

KEYS = Keys("emails")


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``chasqui`` in this process, on an empty server."""
    monkeypatch.delenv("CHASQUI_REDIS_URL", raising=False)
    return partial(call, chasqui, "chasqui", url=server.url)


@pytest.fixture
def emails(server: Server) -> Iterator[BlockingQueue]:
    """The queue ``emails``, as programs use it."""
    with BlockingQueue("emails", redis_url=server.url) as queue:
        yield queue


def parsed(done: Done) -> Any:
    """The one JSON document that a command printed."""
    assert done.err == ""
    return json.loads(done.out)


def leaves(command: click.Command, *path: str) -> list[tuple[str, ...]]:
    """The words that lead to each command of a group."""
    if not isinstance(command, click.Group):
        return [path]
    return [leaf for name, each in command.commands.items() for leaf in leaves(each, *path, name)]


# ── all commands ─────────────────────────────────────────────────────────────


def test_the_list_of_chasqui_commands_is_complete() -> None:
    assert sorted(map(" ".join, leaves(chasqui))) == [
        "add",
        "cancel",
        "clean",
        "counts",
        "dlq peek",
        "dlq replay",
        "drain",
        "events",
        "inspect",
        "job remove",
        "job retry",
        "job show",
        "obliterate",
        "pause",
        "promoter",
        "queues",
        "repeatable add",
        "repeatable list",
        "repeatable remove",
        "result",
        "resume",
        "scheduler",
        "watch",
        "workers",
    ]


@pytest.mark.parametrize("path", leaves(chasqui), ids=" ".join)
def test_each_command_helps_with_an_example(run: Run, path: tuple[str, ...]) -> None:
    done = run(*path, "--help")
    assert done.code == 0
    assert f"  chasqui {' '.join(path)}" in done.out.partition("Example:\n")[2]
    for option in ("--json", "--redis-url", "--verbose"):
        assert option in done.out


def test_line_of_each_command_in_the_help_is_whole(run: Run) -> None:
    lines = run("--help").out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert len(lines) == len(chasqui.commands)
    assert not [line for line in lines if line.endswith("...")]


def test_tambo_chasqui_runs_the_same_commands(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHASQUI_REDIS_URL", raising=False)
    done = call(tambo, "tambo", "chasqui", "counts", "emails", "--json", url=server.url)
    missing = {"queue": "emails", "error": "queue 'emails' does not exist"}
    assert (done.code, json.loads(done.out)) == (3, [missing])
    assert call(tambo, "tambo", "chasqui", "queues", url=server.url) == Done(
        3, "", "tambo: there are no queues\n"
    )


def test_the_flag_wins_and_then_the_variable_of_chasqui(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = "redis://127.0.0.1:1"
    monkeypatch.setenv("CHASQUI_REDIS_URL", server.url)
    assert call(chasqui, "chasqui", "counts", "q", url=nowhere).code == 3
    monkeypatch.setenv("CHASQUI_REDIS_URL", nowhere)
    for args in (
        ("--redis-url", server.url, "counts", "q"),
        ("counts", "q", "--redis-url", server.url),
        ("--redis-url", nowhere, "counts", "q", "--redis-url", server.url),
    ):
        assert call(chasqui, "chasqui", *args, url=nowhere).code == 3


def test_server_that_is_not_there_is_named_with_what_to_do(run: Run) -> None:
    done = run("inspect", "emails", "--redis-url", "redis://:secret@127.0.0.1:1")
    assert (done.code, done.out) == (1, "")
    assert "cannot reach redis://127.0.0.1:1/0" in done.err
    assert "`tambo serve` starts one" in done.err
    assert "secret" not in done.err


def test_start_imports_nothing_slow(server: Server) -> None:
    code = (
        "import sys; from tambomq.cli.chasqui import chasqui;"
        "chasqui.main(['pause', 'emails'], standalone_mode=False);"
        "print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "CHASQUI_REDIS_URL": server.url},
        capture_output=True,
        text=True,
        check=True,
    )
    slow = {"asyncio", "logging", "rich", "tambomq.rsmq", "tambomq.chasqui.worker.worker"}
    assert slow.isdisjoint(done.stdout.split())


# ── inspect ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command", [("inspect",), ("counts",), ("dlq", "peek"), ("repeatable", "list")], ids=" ".join
)
def test_missing_queue_is_named_and_the_exit_code_is_3(
    run: Run, command: tuple[str, ...], server: Server
) -> None:
    missing = "queue 'emails' does not exist\n"
    assert run(*command, "emails") == Done(3, "", f"chasqui: {missing}")
    typed = ("chasqui", *command, "emails")
    assert call(tambo, "tambo", *typed, url=server.url) == Done(3, "", f"tambo: {missing}")


def test_queue_that_was_emptied_is_still_there(run: Run, emails: BlockingQueue) -> None:
    emails.add("a", 1)
    emails.drain()
    assert run("inspect", "emails").code == 0
    assert "stream depth            ┆ 0 " in run("inspect", "emails").out


def test_tambo_draws_its_usual_tables_with_times_in_utc(
    server: Server, emails: BlockingQueue
) -> None:
    emails.add("a", 1)
    emails.upsert_repeatable_job("c", 1, repeat={"kind": "every", "interval_ms": 60_000})
    typed = partial(call, tambo, "tambo", "chasqui", url=server.url)
    head, row = typed("counts", "emails").out.splitlines()
    columns = ["queue", "waiting", "active", "delayed", "dead", "repeatable", "paused"]
    assert head.split() == columns
    assert row.split() == ["emails", "1", "0", "0", "0", "1", "no"]
    listed = typed("repeatable", "list", "emails").out
    assert re.search(r"c::every:60000 +c +every 60000ms +- +\d{4}-\d\d-\d\dT\S+Z +-", listed)
    assert "(ms)" not in listed


def test_inspect_shows_how_many_jobs_are_in_each_state(
    run: Run, emails: BlockingQueue, db: redis.Redis
) -> None:
    emails.add_bulk([{"name": "a", "data": number} for number in range(3)])
    emails.add("b", 1, delay_ms=100_000)
    emails.upsert_repeatable_job("c", 1, repeat={"kind": "every", "interval_ms": 60_000})
    db.xadd(KEYS.dlq, {"d": "x"})
    db.xgroup_create(KEYS.stream, "crew", "0")
    db.xreadgroup("crew", "me", {KEYS.stream: ">"}, count=2)
    assert run("inspect", "emails", "--group", "crew").out == (
        """\
┌─────────────────────────┬─────────────┐
│ queue: emails           ┆ group: crew │
╞═════════════════════════╪═════════════╡
│ stream depth            ┆ 3           │
│ pending                 ┆ 2           │
│ DLQ depth               ┆ 1           │
│ delayed depth           ┆ 1           │
│ oldest delayed lag (ms) ┆ 0           │
│ repeatable count        ┆ 1           │
└─────────────────────────┴─────────────┘
"""
    )
    assert parsed(run("inspect", "emails", "--json")) == {
        "queue": "emails",
        "group": "default",
        "stream_depth": 3,
        "pending": 0,
        "dlq_depth": 1,
        "delayed_depth": 1,
        "oldest_delayed_lag_ms": 0,
        "repeatable_count": 1,
        "group_created": False,
        "paused": False,
    }


def test_job_that_was_trimmed_while_it_ran_is_pending_and_not_in_the_stream(
    run: Run, emails: BlockingQueue, db: redis.Redis
) -> None:
    emails.add("a", 1)
    db.xgroup_create(KEYS.stream, "default", "0")
    db.xreadgroup("default", "me", {KEYS.stream: ">"})
    db.xtrim(KEYS.stream, maxlen=0, approximate=False)
    found = parsed(run("inspect", "emails", "--json"))
    assert (found["stream_depth"], found["pending"]) == (0, 1)


def test_control_characters_of_names_are_escaped(run: Run, server: Server) -> None:
    with BlockingQueue("\x1b[31mred\n", redis_url=server.url) as red:
        red.add("a", 1)
    assert "\x1b" not in run("inspect", "\x1b[31mred\n").out
    assert r"queue: \x1b[31mred\n" in run("inspect", "\x1b[31mred\n").out


# ── queues and counts ────────────────────────────────────────────────────────


def test_queues_are_listed_with_what_is_in_them_and_which_cannot_be_read(
    run: Run, emails: BlockingQueue, db: redis.Redis
) -> None:
    emails.add("a", 1)
    emails.pause()
    db.set(Keys("odd").stream, "no stream")
    out = run("queues").out
    assert out.startswith(
        """\
┌────────┬─────────┬────────┬─────────┬──────┬────────────┬────────┐
│ queue  ┆ waiting ┆ active ┆ delayed ┆ dead ┆ repeatable ┆ paused │
╞════════╪═════════╪════════╪═════════╪══════╪════════════╪════════╡
│ emails ┆ 1       ┆ 0      ┆ 0       ┆ 0    ┆ 0          ┆ yes    │
└────────┴─────────┴────────┴─────────┴──────┴────────────┴────────┘
odd: """
    )
    found = parsed(run("queues", "--json"))
    assert [(each["queue"], "error" in each) for each in found] == [
        ("emails", False),
        ("odd", True),
    ]
    assert found[0]["waiting"] == 1


def test_a_server_without_queues_is_exit_3(run: Run) -> None:
    assert run("queues") == Done(3, "", "chasqui: there are no queues\n")
    assert run("queues", "--json") == Done(3, "[]\n")


def test_counts_are_of_the_queues_that_are_named(run: Run, emails: BlockingQueue) -> None:
    emails.add("a", 1)
    done = run("counts", "nope", "emails", "--json")
    assert (done.code, done.err) == (3, "chasqui: queue 'nope' does not exist\n")
    missing, found = json.loads(done.out)
    assert missing == {"queue": "nope", "error": "queue 'nope' does not exist"}
    assert (found["queue"], found["waiting"]) == ("emails", 1)


# ── result ───────────────────────────────────────────────────────────────────


def test_result_is_printed_as_json(run: Run, db: redis.Redis) -> None:
    db.set(KEYS.result("j1"), encode_payload({"sum": [1, None, "ä"], 2: b"\xff"}))
    value = {"sum": [1, None, "ä"], "2": {"base64": "/w=="}}
    assert parsed(run("result", "emails", "j1")) == value
    assert parsed(run("result", "emails", "j1", "--wait", "5")) == value
    assert parsed(run("result", "emails", "j1", "--json")) == {
        "queue": "emails",
        "id": "j1",
        "result": value,
    }


def test_a_missing_result_is_exit_3_and_shows_the_progress(run: Run, db: redis.Redis) -> None:
    db.set(KEYS.progress("j1"), "40")
    for args in ((), ("--wait", "0.01")):
        assert run("result", "emails", "j1", *args) == Done(
            3,
            "",
            "chasqui: no result of job j1 on the queue emails; the job reported 40 %\n",
        )
    assert run("result", "emails", "j2", "--json") == Done(
        3, '{"queue": "emails", "id": "j2", "result": null}\n'
    )
