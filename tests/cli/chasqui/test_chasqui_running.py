from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.add import CONSUMER_PREFIX
from tests.chasqui import stored
from tests.journal.looking import records
from tests.servers import Server, eventually

KEYS = Keys("emails")
WITHIN_S = 60.0
_MAIN = "from tambomq.cli.chasqui import main; main()"


class Running:
    """A ``chasqui`` that has been started, and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self._folder = process, folder

    @property
    def out(self) -> str:
        """What is on stdout."""
        return (self._folder / "out").read_text()

    @property
    def err(self) -> str:
        """What is on stderr."""
        return (self._folder / "err").read_text()

    def says(self, pattern: str, stream: str = "out") -> None:
        """Wait until *stream* holds *pattern*."""
        eventually(lambda: re.search(pattern, getattr(self, stream)), within_s=WITHIN_S)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(WITHIN_S)


Start = Callable[..., Running]


@contextmanager
def started(url: str, folder: Path, *args: str) -> Iterator[Running]:
    """Start ``chasqui`` with *args*; it is killed at the end if it still runs."""
    folder.mkdir()
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, *args],
            env={**os.environ, "CHASQUI_REDIS_URL": url},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    try:
        yield Running(process, folder)
    finally:
        process.kill()
        process.wait(WITHIN_S)


@pytest.fixture
def start(server: Server, tmp_path: Path) -> Iterator[Start]:
    """A function that starts ``chasqui`` on an empty server."""
    with ExitStack() as stack:
        numbers = iter(range(100))

        def start_one(*args: str, url: str = server.url) -> Running:
            folder = tmp_path / str(next(numbers))
            return stack.enter_context(started(url, folder, *args))

        yield start_one


@pytest.fixture
def emails(server: Server) -> Iterator[BlockingQueue]:
    """The queue ``emails``, as programs use it."""
    with BlockingQueue("emails", redis_url=server.url) as queue:
        yield queue


# ── watch ────────────────────────────────────────────────────────────────────


def test_watch_shows_changes_from_the_second_sample_on(start: Start, emails: BlockingQueue) -> None:
    watching = start("watch", "emails", "--interval-ms", "10")
    watching.says(r"Δ")
    emails.add_bulk([{"name": "a", "data": 1}] * 2)
    watching.says(r"stream depth +┆ 2 +┆ \+2 │")
    emails.drain()
    watching.says(r"stream depth +┆ 0 +┆ -2 │")
    assert watching.stop() == 0
    first, second, *_ = watching.out.split("chasqui watch ")[1:]
    assert re.match(r"emails  refresh=10ms  \S{23}Z  \(Ctrl\+C to exit\)\n┌", first)
    assert "Δ" not in first
    assert (
        """\
│ queue: emails           ┆ group: default        ┆ Δ │
╞═════════════════════════╪═══════════════════════╪═══╡
│ stream depth            ┆ 0                     ┆ 0 │
│ pending                 ┆ 0 (group not created) ┆ - │
│ DLQ depth               ┆ 0                     ┆ 0 │
│ delayed depth           ┆ 0                     ┆ - │
│ oldest delayed lag (ms) ┆ -                     ┆ - │
│ repeatable count        ┆ 0                     ┆ - │
└─────────────────────────┴───────────────────────┴───┘
"""
        in second
    )


def test_watch_prints_each_sample_as_a_line_of_json(start: Start) -> None:
    watching = start("watch", "emails", "--interval-ms", "10", "--json")
    watching.says(r"(?s)\}\n.*\}\n")
    assert watching.stop() == 0
    for line in watching.out.splitlines()[:2]:
        assert json.loads(line)["stream_depth"] == 0


def test_watch_clears_the_screen_of_a_terminal(server: Server) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _MAIN, "watch", "emails"],
        env={**os.environ, "CHASQUI_REDIS_URL": server.url, "TERM": "xterm"},
        stdout=theirs,
    )
    os.close(theirs)
    drawn = b""
    while "└".encode() not in drawn:
        drawn += os.read(ours, 65_536)
    process.send_signal(signal.SIGINT)
    assert process.wait(WITHIN_S) == 0
    os.close(ours)
    assert drawn.startswith(b"\x1b[2J\x1b[1;1Hchasqui watch emails")


def test_watch_and_events_wait_for_a_server_that_went_away(
    start: Start, private_server: Server
) -> None:
    watching = start("watch", "emails", "--interval-ms", "10", url=private_server.url)
    listening = start("events", "emails", "--from", "0", url=private_server.url)
    watching.says("Δ")
    private_server.kill()
    watching.says("cannot reach .*; still trying\n", "err")
    listening.says(r"xread error: .+; retrying in 200ms\n", "err")
    private_server.restart()
    with BlockingQueue("emails", redis_url=private_server.url) as emails:
        emails.add("a", 1, delay_ms=60_000, job_id="after")
    watching.says(r"delayed depth +┆ 1 ")
    listening.says("id=after")
    assert (watching.stop(), listening.stop()) == (0, 0)


# ── events ───────────────────────────────────────────────────────────────────


def test_event_is_a_line_with_its_fields_sorted_and_cut(start: Start, db: redis.Redis) -> None:
    db.xadd(KEYS.events, {"e": "drained", "id": "", "ts": "1800000000001"}, id="5-1")
    long: dict[Any, Any] = {"e": "failed", "id": "j1", "ts": "no number", "reason": "x\n" * 50}
    db.xadd(KEYS.events, {**long, "n": "a", "attempt": "2"}, id="1700000000123-0")
    listening = start("events", "emails", "--from", "0")
    listening.says("failed.*\n")
    cut = "x\\n" * 40
    assert listening.out == (
        "2027-01-15T08:00:00.001Z 5-1 drained id=- name=-\n"
        "2023-11-14T22:13:20.123Z 1700000000123-0 failed id=j1 name=a attempt=2 "
        f"reason={cut}...\n"
    )
    db.xadd(KEYS.events, {"e": "completed", "id": "j2", "ts": "1"})
    listening.says("completed id=j2")
    assert listening.stop() == 0
    assert listening.err == ""


def test_events_start_with_new_ones_by_default_and_can_be_json_lines(
    start: Start, db: redis.Redis
) -> None:
    db.xadd(KEYS.events, {"e": "old", "id": "", "ts": "1"}, id="5-1")
    listening = start("events", "emails", "--json")
    eventually(lambda: stored.has_event_reader(db), within_s=WITHIN_S)
    db.xadd(
        KEYS.events,
        {"e": "active", "id": "j1", "ts": "1800000000001", "n": "a", "attempt": "1"},
        id="1800000000002-0",
    )
    listening.says("active.*\n")
    assert listening.stop() == 0
    assert json.loads(listening.out) == {
        "time": "2027-01-15T08:00:00.001Z",
        "event_id": "1800000000002-0",
        "event": "active",
        "job_id": "j1",
        "job_name": "a",
        "ts": 1_800_000_000_001,
        "attempt": 1,
    }


def test_an_invalid_event_id_is_a_usage_error(start: Start) -> None:
    listening = start("events", "emails", "--from", "yesterday")
    assert listening.process.wait(WITHIN_S) == 2
    assert "--from yesterday" in listening.err


# ── leaders ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_promoter_leads_several_queues_until_a_signal(
    start: Start, server: Server, db: redis.Redis, number: int
) -> None:
    leading = start("promoter", "emails", "reports", "emails")
    for name in ("emails", "reports"):
        leading.says(rf"the promoter of queue '{name}': {CONSUMER_PREFIX}\S+ leads\n", "err")
        holder = db.get(Keys(name).promoter_lock)
        assert isinstance(holder, bytes)
        assert holder.startswith(CONSUMER_PREFIX.encode())
        with BlockingQueue(name, redis_url=server.url) as queue:
            queue.add("a", 1, delay_ms=50, job_id="soon")
        assert eventually(partial(stored.ids, db, Keys(name)), within_s=WITHIN_S) == ["soon"]
    assert leading.stop(number) == 0
    assert db.exists(KEYS.promoter_lock, Keys("reports").promoter_lock) == 0
    assert leading.err.count("'emails'") == 1
    assert leading.err.endswith("stopped\n")


def test_the_scheduler_adds_repeatable_jobs_and_logs_json_lines(
    start: Start, emails: BlockingQueue, db: redis.Redis
) -> None:
    emails.add("tick", 1, repeat={"kind": "every", "interval_ms": 50})
    leading = start("scheduler", "emails", "--json")
    eventually(lambda: len(stored.ids(db, KEYS)) >= 2, within_s=WITHIN_S)
    assert leading.stop(signal.SIGTERM) == 0
    assert db.exists(KEYS.scheduler_lock) == 0
    messages = [json.loads(line)["message"] for line in leading.err.splitlines()]
    assert any(text.startswith("the scheduler of queue 'emails': tambo-") for text in messages)


def test_the_scheduler_journals_its_jobs_with_the_flag(
    start: Start, emails: BlockingQueue, server: Server, db: redis.Redis
) -> None:
    emails.upsert_repeatable_job("tick", 1, repeat={"kind": "every", "interval_ms": 50}, limit=2)
    leading = start("scheduler", "emails", "--journal")
    eventually(lambda: len(stored.ids(db, KEYS)) == 2, within_s=WITHIN_S)
    assert leading.stop(signal.SIGTERM) == 0
    recorded = [each.id for each in records(server.url, "chasqui", "emails")]
    assert recorded == stored.ids(db, KEYS)


def test_second_promoter_takes_over_when_the_first_ends(start: Start) -> None:
    first = start("promoter", "emails")
    first.says("leads\n", "err")
    second = start("promoter", "emails")
    second.says("is up", "err")
    assert first.stop() == 0
    second.says("leads\n", "err")
    assert second.stop() == 0


def test_leader_without_a_server_says_so_and_can_be_stopped(start: Start) -> None:
    leading = start("promoter", "emails", url="redis://127.0.0.1:1")
    leading.says("cannot reach redis://127.0.0.1:1/0", "err")
    assert leading.stop() == 0
