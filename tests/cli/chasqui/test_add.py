from __future__ import annotations

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

from tambomq.chasqui.job import BackoffSpec
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.cli.chasqui import chasqui
from tambomq.cli.chasqui.client import InteractiveQueue
from tambomq.cli.chasqui.values import backoff, missed_fires, moment
from tambomq.store.sync import Store
from tests.chasqui import stored
from tests.cli.transcript import Done, call
from tests.servers.run import Server

Run = Callable[..., Done]

KEYS = Keys("emails")
_MAIN = "from tambomq.cli.chasqui import main; main()"


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``chasqui add emails`` in this process, on an empty server."""
    monkeypatch.delenv("CHASQUI_REDIS_URL", raising=False)
    return partial(call, chasqui, "chasqui", "add", "emails", url=server.url)


def added(db: redis.Redis) -> list[tuple[str, Any]]:
    """Name and data of each job that waits."""
    return [(name, decode_payload(job.payload)) for name, job in stored.jobs(db, KEYS)]


# ── one job ──────────────────────────────────────────────────────────────────


def test_a_queue_of_a_command_adds_by_the_store_that_the_command_closes(server: Server) -> None:
    store = Store(server.url, patience_s=0)
    queue = InteractiveQueue("emails", store)
    assert queue._senders.default is store


def test_id_is_printed_and_the_data_is_json(run: Run, db: redis.Redis) -> None:
    one = run("welcome", '{"to": "ada", "n": [1, 2.5, null]}')
    two = run("welcome", "-", stdin='"ä"\n'.encode())
    three = run("welcome")
    assert (one.out + two.out + three.out).split() == stored.ids(db, KEYS)
    assert added(db) == [
        ("welcome", {"to": "ada", "n": [1, 2.5, None]}),
        ("welcome", "ä"),
        ("welcome", None),
    ]
    done = run("welcome", "1", "--id", "mine", "--json")
    expected = {"queue": "emails", "id": "mine", "name": "welcome", "added": True}
    assert json.loads(done.out) == expected


def test_data_that_is_not_json_is_a_usage_error_with_a_way_out(run: Run, db: redis.Redis) -> None:
    done = run("welcome", "hello")
    assert done.code == 2
    assert "'\"hello\"'" in done.err
    assert added(db) == []


def test_delay_time_attempts_and_backoff_are_stored(run: Run, db: redis.Redis) -> None:
    options = ("--attempts", "7", "--backoff", "exponential:1s:1m")
    assert run("later", "--id", "a", "--delay", "1.5h", *options).code == 0
    assert run("then", "--id", "b", "--at", "2001-01-01").code == 0
    ((name, job, due_ms),) = stored.delayed(db, KEYS)
    assert (name, job.id, due_ms - job.created_at_ms) == ("later", "a", 5_400_000)
    assert job.retry is not None
    assert job.retry.max_attempts == 7
    assert job.retry.backoff == BackoffSpec("exponential", 1000, 60_000)
    assert stored.ids(db, KEYS) == ["b"]


def test_once_means_once_for_all_commands(run: Run, db: redis.Redis) -> None:
    for _ in range(2):
        assert run("welcome", "--id", "a", "--once").out == "a\n"
    again = run("welcome", "--id", "a", "--once", "--json")
    assert json.loads(again.out)["added"] is False
    assert stored.ids(db, KEYS) == ["a"]


def test_job_recurs_under_the_key_that_is_printed(run: Run, db: redis.Redis) -> None:
    assert run("sync", "--every", "5m").out == "sync::every:300000\n"
    done = run("daily", "--cron", "0 9 * * *", "--tz", "Europe/Berlin", "--json")
    key = json.loads(done.out)["key"]
    assert key == "daily::cron:0 9 * * *:Europe/Berlin"
    assert db.zscore(KEYS.repeat, key)


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("a", "1", "--bulk"),
        ("a", "--bulk", "--count", "2"),
        ("a", "--count", "2", "--id", "x"),
        ("a", "--count", "2", "--every", "5s"),
        ("a", "--delay", "5s", "--every", "5s"),
        ("a", "--delay", "5s", "--at", "2030-01-01"),
        ("a", "--once"),
        ("a", "--once", "--id", "x", "--every", "5s"),
        ("a", "--every", "5s", "--cron", "* * * * *"),
        ("a", "--every", "5s", "--tz", "UTC"),
        ("a", "--delay", "soon"),
        ("a", "--at", "soon"),
        ("a", "--backoff", "linear:5s"),
        ("a", "--attempts", "0"),
    ],
    ids=" ".join,
)
def test_options_that_exclude_each_other_are_a_usage_error(
    run: Run, db: redis.Redis, args: tuple[str, ...]
) -> None:
    assert run(*args).code == 2
    assert db.dbsize() == 0


def test_a_full_queue_is_reported_with_the_flags_that_help(run: Run, db: redis.Redis) -> None:
    assert run("a", "1", "--max-stream-len", "1").code == 0
    done = run("a", "2", "--max-stream-len", "1")
    assert (done.code, done.out) == (1, "")
    assert "--max-stream-len" in done.err
    assert "--overflow trim" in done.err
    assert run("a", "3", "--max-stream-len", "1", "--overflow", "trim").code == 0
    assert added(db)[-1] == ("a", 3)


def test_delayed_job_where_another_engine_leads_is_stored_as_that_reads_it(
    run: Run, db: redis.Redis
) -> None:
    db.set(KEYS.promoter_lock, "c-1234")
    done = run("a", "--delay", "1h", "--dialect", "page")
    assert done.code == 1
    assert "--dialect engine" in done.err
    assert db.zcard(KEYS.delayed) == 0
    assert run("a", "--delay", "1h").code == 0
    assert run("a", "--delay", "1h", "--dialect", "engine").code == 0
    members: Any = db.zrange(KEYS.delayed, 0, -1)
    assert [member[:5] for member in members] == [b"\x01\0\0\0a"] * 2


# ── many jobs ────────────────────────────────────────────────────────────────


def test_count_adds_the_same_job_so_often(run: Run, db: redis.Redis) -> None:
    assert run("load", '"x"', "--count", "1234").out == "added 1234 jobs to the queue emails\n"
    assert added(db) == [("load", "x")] * 1234
    assert json.loads(run("load", "--count", "1", "--json").out) == {"queue": "emails", "added": 1}


def test_each_line_is_the_data_of_a_job_and_order_is_kept(run: Run, db: redis.Redis) -> None:
    lines = "\n\n".join(map(str, range(1200))).encode()
    assert run("a", "--bulk", stdin=lines).out == "added 1200 jobs to the queue emails\n"
    assert added(db) == [("a", number) for number in range(1200)]


def test_without_a_name_each_bulk_line_is_a_job_whose_options_win(
    run: Run, db: redis.Redis
) -> None:
    lines = [
        {"name": "a", "data": 1},
        {"name": "b", "job_id": "mine", "attempts": 9},
        {"name": "c", "data": 3, "delay_ms": 60_000},
    ]
    stdin = "\n".join(map(json.dumps, lines)).encode()
    assert run("--bulk", "--attempts", "5", stdin=stdin).code == 0
    jobs = dict(stored.jobs(db, KEYS))
    attempts = {name: job.retry and job.retry.max_attempts for name, job in jobs.items()}
    assert attempts == {"a": 5, "b": 9}
    assert jobs["b"].id == "mine"
    assert [name for name, _, _ in stored.delayed(db, KEYS)] == ["c"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "line 702 is not JSON"),
        (b"3", "line 702 is no job"),
        (b'{"name": "a", "attempts": -1}', "line 702: attempts must be"),
        (b'{"name": "a", "color": "red"}', "line 702: job 'color' is not valid"),
    ],
)
def test_bulk_stops_at_an_invalid_line_and_names_it(
    run: Run, db: redis.Redis, line: bytes, why: str
) -> None:
    stdin = b"\n".join([b'{"name": "a"}'] * 701 + [line] + [b'{"name": "z"}'])
    done = run("--bulk", stdin=stdin)
    assert done.code == 1
    assert done.err.startswith(f"chasqui: {why}")
    assert done.err.endswith("; 500 jobs added, up to line 500\n")
    assert len(added(db)) == 500


def test_bulk_that_fills_the_queue_says_how_far_it_came(run: Run, db: redis.Redis) -> None:
    done = run("a", "--bulk", "--max-stream-len", "600", stdin=b"1\n" * 2000)
    assert done.code == 1
    assert "raise --max-stream-len" in done.err
    assert done.err.endswith("; 500 jobs added, up to line 500\n")
    assert len(added(db)) == 500


def test_progress_is_drawn_on_a_terminal_and_not_in_the_result(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_bytes(b"1\n" * 2000)
    ours, theirs = pty.openpty()
    with (tmp_path / "lines").open() as lines:
        done = subprocess.run(
            [sys.executable, "-c", _MAIN, "add", "emails", "a", "--bulk"],
            env={**os.environ, "CHASQUI_REDIS_URL": server.url, "TERM": "xterm"},
            stdin=lines,
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=True,
        )
    drawn = os.read(ours, 65_536)
    os.close(ours)
    os.close(theirs)
    assert b"adding" in drawn
    assert b"2000 jobs" in drawn
    assert done.stdout == b"added 2000 jobs to the queue emails\n"


# ── how values are written ───────────────────────────────────────────────────


def test_time_without_an_offset_is_in_utc() -> None:
    assert moment("2030-01-31T09:00") == moment("2030-01-31T10:00+01:00")


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("5", BackoffSpec("fixed", 5000)),
        ("250ms", BackoffSpec("fixed", 250)),
        ("fixed:5s", BackoffSpec("fixed", 5000)),
        ("exponential:1s", BackoffSpec("exponential", 1000)),
        ("exponential:1s:1m", BackoffSpec("exponential", 1000, 60_000)),
    ],
)
def test_backoff_is_a_kind_with_durations(text: str, spec: BackoffSpec) -> None:
    assert backoff(text) == spec


@pytest.mark.parametrize(
    "text", ["", "5s:5s", "fixed:1s:1m", "exponential:", "exponential:1:2:3", "5w"]
)
def test_an_invalid_backoff_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a backoff"):
        backoff(text)


def test_missed_fires_are_skipped_or_made_up_for() -> None:
    assert missed_fires("skip").kind == "skip"
    assert missed_fires("fire-once").kind == "fire-once"
    assert missed_fires("fire-all:10").max_catchup == 10
    for wrong in ("fire-all", "fire-all:0", "all", "fire-all:99999999999"):
        with pytest.raises(click.BadParameter, match="is none of"):
            missed_fires(wrong)
