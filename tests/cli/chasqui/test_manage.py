from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import encode_envelope
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.cli.chasqui import chasqui
from tests.chasqui import stored
from tests.cli.transcript import Done, call
from tests.servers.run import Server

Run = Callable[..., Done]

KEYS = Keys("emails")
_MAIN = "from tambomq.cli.chasqui import main; main()"


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


@pytest.fixture
def on_terminal(server: Server) -> Callable[..., Done]:
    """``chasqui`` in a process whose standard input is a terminal that gives an answer."""

    def run(answer: str, *args: str) -> Done:
        ours, theirs = pty.openpty()
        os.write(ours, answer.encode())
        done = subprocess.run(
            [sys.executable, "-c", _MAIN, *args],
            env={**os.environ, "CHASQUI_REDIS_URL": server.url},
            stdin=theirs,
            capture_output=True,
            text=True,
            check=False,
        )
        os.close(ours)
        os.close(theirs)
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def parsed(done: Done) -> Any:
    """The one JSON document that a command printed."""
    assert done.err == ""
    return json.loads(done.out)


def letter(id: str, data: object = 1) -> bytes:
    """A job as it lies in the dead-letter queue."""
    return encode_envelope(Envelope(id, encode_payload(data), 1, attempt=3))


def start_one(db: redis.Redis) -> None:
    """Read one job as a worker of the group."""
    db.xgroup_create(KEYS.stream, "default", "0")
    db.xreadgroup("default", "me", {KEYS.stream: ">"}, count=1)


# ── dead letters ─────────────────────────────────────────────────────────────


def test_empty_dlq_says_so_in_both_tables(run: Run, emails: BlockingQueue) -> None:
    emails.add("a", 1)
    assert run("dlq", "peek", "emails") == Done(
        0,
        """\
┌──────────────────┬───────────┬──────┬────────┬────────┬───────────────┐
│ dlq peek: emails ┆ source_id ┆ name ┆ reason ┆ detail ┆ payload bytes │
╞══════════════════╪═══════════╪══════╪════════╪════════╪═══════════════╡
│ (empty)          ┆ -         ┆ -    ┆ -      ┆ -      ┆ -             │
└──────────────────┴───────────┴──────┴────────┴────────┴───────────────┘

┌──────────────┬───────┐
│ reason       ┆ count │
╞══════════════╪═══════╡
│ (no entries) ┆ 0     │
└──────────────┴───────┘
""",
    )


def test_letters_are_shown_the_oldest_first_with_their_reasons(run: Run, db: redis.Redis) -> None:
    entries: tuple[tuple[str, dict[Any, Any]], ...] = (
        ("1-1", {"d": "abc", "n": "a", "source_id": "0-7", "reason": "x", "detail": "ä" * 40}),
        ("2-1", {"d": "", "source_id": "", "reason": "", "detail": "two\nlines"}),
        ("3-1", {"d": "abcd", "source_id": "0-9", "reason": "b"}),
        ("4-1", {"d": "", "source_id": "0-9", "reason": "x"}),
        ("5-1", {"d": "beyond the limit"}),
    )
    for id, fields in entries:
        db.xadd(KEYS.dlq, fields, id=id)
    assert run("dlq", "peek", "emails", "--limit", "4").out == (
        """\
┌──────────────────┬───────────┬──────┬────────┬─────────────────────────────────┬───────────────┐
│ dlq peek: emails ┆ source_id ┆ name ┆ reason ┆ detail                          ┆ payload bytes │
╞══════════════════╪═══════════╪══════╪════════╪═════════════════════════════════╪═══════════════╡
│ 1-1              ┆ 0-7       ┆ a    ┆ x      ┆ ääääääääääääääääääääääääääääää… ┆ 3             │
│ 2-1              ┆ -         ┆ -    ┆ -      ┆ two\\nlines                      ┆ 0             │
│ 3-1              ┆ 0-9       ┆ -    ┆ b      ┆ -                               ┆ 4             │
│ 4-1              ┆ 0-9       ┆ -    ┆ x      ┆ -                               ┆ 0             │
└──────────────────┴───────────┴──────┴────────┴─────────────────────────────────┴───────────────┘

┌───────────┬───────┐
│ reason    ┆ count │
╞═══════════╪═══════╡
│ (unknown) ┆ 1     │
│ b         ┆ 1     │
│ x         ┆ 2     │
└───────────┴───────┘
"""
    )


def test_json_has_the_data_of_a_job_or_the_bytes_of_an_invalid_one(
    run: Run, db: redis.Redis
) -> None:
    stored.bury(db, KEYS, letter("j1", {"to": 1}), "a", "x")
    stored.bury(db, KEYS, b"\xc1", reason="malformed")
    found = parsed(run("dlq", "peek", "emails", "--json"))
    assert found["reasons"] == {"malformed": 1, "x": 1}
    job, no_job = found["entries"]
    assert (job["job_id"], job["attempts_made"], job["data"]) == ("j1", 3, {"to": 1})
    assert no_job["payload"] == {"base64": "wQ=="}


def test_an_error_is_shown_with_its_type_and_on_request_with_its_traceback(
    run: Run, db: redis.Redis
) -> None:
    raised: dict[Any, Any] = {
        "detail": "'to'",
        "error_type": "KeyError",
        "traceback": "Traceback …\n  a\nKeyError",
    }
    db.xadd(KEYS.dlq, {"d": letter("j1", {}), "reason": "x", **raised}, id="1-1")
    db.xadd(KEYS.dlq, {"d": "", "reason": "malformed"}, id="2-1")
    assert "┆ KeyError: 'to' ┆" in run("dlq", "peek", "emails").out
    shown = run("dlq", "peek", "emails", "--traceback").out
    assert shown.endswith(
        "\n1-1  KeyError: 'to'\nTraceback …\n  a\nKeyError\n\n2-1  \n(no traceback)\n"
    )
    entry, _ = parsed(run("dlq", "peek", "emails", "--json"))["entries"]
    assert {name: entry[name] for name in raised} == raised


def test_replay_takes_letters_by_reason_name_id_and_limit(run: Run, db: redis.Redis) -> None:
    ids = [
        stored.bury(db, KEYS, letter(f"j{number}"), name, reason)
        for number, (name, reason) in enumerate([("a", "x"), ("b", "x"), ("a", "y"), ("c", "y")])
    ]
    replay = partial(run, "dlq", "replay", "emails", "--yes")
    assert replay("--reason", "x", "--name", "a").out == "replayed 1 of 100 entries\n"
    assert replay("--id", ids[3]).out == "replayed 1 of 1 entries\n"
    assert parsed(replay("--limit", "1", "--json")) == {
        "queue": "emails",
        "replayed": 1,
        "limit": 1,
    }
    assert stored.ids(db, KEYS) == ["j0", "j3", "j1"]
    assert [job.attempt for _, job in stored.jobs(db, KEYS)] == [0, 0, 0]
    again = replay("--id", ids[3], "--id", ids[2])
    assert (again.code, again.out) == (3, "replayed 1 of 2 entries\n")
    assert "chasqui dlq peek" in again.err
    assert replay() == Done(0, "replayed 0 of 100 entries\n")


@pytest.mark.parametrize(
    ("answer", "code", "out", "err"),
    [
        ("y\n", 0, "replayed 1 of 7 entries\n", ""),
        ("YES\n", 0, "replayed 1 of 7 entries\n", ""),
        ("\n", 1, "", "Error: aborted\n"),
        ("yep\n", 1, "", "Error: aborted\n"),
        ("\x04", 1, "", "Error: aborted\n"),
    ],
)
def test_replay_asks_on_stderr(
    on_terminal: Run, db: redis.Redis, answer: str, code: int, out: str, err: str
) -> None:
    stored.bury(db, KEYS, letter("j1"))
    assert on_terminal(answer, "dlq", "replay", "emails", "--limit", "7") == Done(
        code, out, "Replay up to 7 DLQ entries on queue emails? [y/N]: " + err
    )
    assert db.xlen(KEYS.dlq) == code


# ── jobs that recur ──────────────────────────────────────────────────────────


def test_jobs_that_recur_are_listed_the_next_to_fire_first(run: Run, db: redis.Redis) -> None:
    add = partial(run, "repeatable", "add", "emails")
    assert add("daily", "--cron", "0 9 * * *", "--key", "k1", "--limit", "3").out == "k1\n"
    assert add("tz", "--cron", "0 9 * * *", "--tz", "Asia/Tokyo", "--key", "k2").out == "k2\n"
    assert add("sync", "--every", "1m", "--key", "k3").out == "k3\n"
    db.zadd(KEYS.repeat, {"k1": 1_800_000_000_000, "k2": 1_900_000_000_000, "k3": 5})
    assert run("repeatable", "list", "emails").out == (
        """\
┌────────────────────┬──────────┬───────────────┬────────────┬────────────────┬───────┐
│ repeatable: emails ┆ job_name ┆ pattern       ┆ tz         ┆ next fire (ms) ┆ limit │
╞════════════════════╪══════════╪═══════════════╪════════════╪════════════════╪═══════╡
│ k3                 ┆ sync     ┆ every 60000ms ┆ -          ┆ 5              ┆ -     │
│ k1                 ┆ daily    ┆ 0 9 * * *     ┆ UTC        ┆ 1800000000000  ┆ 3     │
│ k2                 ┆ tz       ┆ 0 9 * * *     ┆ Asia/Tokyo ┆ 1900000000000  ┆ -     │
└────────────────────┴──────────┴───────────────┴────────────┴────────────────┴───────┘
"""
    )
    first = parsed(run("repeatable", "list", "emails", "--limit", "1", "--json"))
    assert [each["key"] for each in first] == ["k3"]
    assert first[0]["pattern"] == {"kind": "every", "interval_ms": 60_000}


def test_bounds_and_missed_fires_are_stored(run: Run, emails: BlockingQueue) -> None:
    args = ("--every", "1h", "--start", "2040-01-01", "--end", "2041-01-01T00:00+01:00")
    done = run("repeatable", "add", "emails", "a", "1", *args, "--missed", "fire-all:5", "--json")
    assert parsed(done) == {"queue": "emails", "key": "a::every:3600000", "name": "a"}
    (found,) = emails.get_repeatable_jobs()
    assert found.start_after_ms == 2_208_988_800_000
    assert found.end_before_ms == 2_240_607_600_000
    assert found.missed_fires is not None
    assert found.missed_fires.max_catchup == 5


def test_a_repeatable_job_needs_a_valid_pattern(run: Run) -> None:
    assert run("repeatable", "add", "emails", "a").code == 2
    wrong = run("repeatable", "add", "emails", "a", "--cron", "61 * * * *")
    assert wrong.code == 1
    assert wrong.err.startswith("chasqui: cron expression '61 * * * *' is not valid")


def test_a_removed_repeatable_job_is_not_listed(run: Run, emails: BlockingQueue) -> None:
    run("repeatable", "add", "emails", "a", "--every", "1h", "--key", "k")
    remove = partial(run, "repeatable", "remove", "emails", "k")
    assert remove() == Done(0, "removed\n")
    assert emails.get_repeatable_jobs() == []
    again = remove()
    assert (again.code, again.out) == (3, "not found\n")
    assert remove("--json") == Done(3, '{"queue": "emails", "key": "k", "removed": false}\n')
    emails.pause()
    assert "(empty)" in run("repeatable", "list", "emails").out


# ── the queue as a whole ─────────────────────────────────────────────────────


def test_queue_is_paused_and_resumed(run: Run, emails: BlockingQueue) -> None:
    assert "chasqui resume emails" in run("pause", "emails").out
    assert emails.is_paused()
    assert run("resume", "emails") == Done(0, "resumed the queue emails\n")
    assert run("resume", "emails") == Done(0, "the queue emails was not paused\n")
    assert parsed(run("pause", "emails", "--json")) == {"queue": "emails", "paused": True}


def test_delayed_jobs_are_cancelled_by_their_ids(run: Run, emails: BlockingQueue) -> None:
    for id in ("a", "b"):
        emails.add("x", 1, job_id=id, delay_ms=60_000)
    done = run("cancel", "emails", "a", "nope")
    assert (done.code, done.out) == (3, "cancelled a\n")
    assert done.err == "chasqui: not delayed under this id on the queue emails: nope\n"
    assert parsed(run("cancel", "emails", "b", "--json"))["cancelled"] == ["b"]
    assert emails.get_job_counts().delayed == 0


def test_drain_deletes_waiting_jobs_and_with_a_flag_delayed_ones(
    run: Run, emails: BlockingQueue, db: redis.Redis
) -> None:
    emails.add_bulk([{"name": "a", "data": 1}] * 3)
    emails.add("b", 1, delay_ms=60_000)
    start_one(db)
    assert run("drain", "emails", "--yes").out == "deleted 2 jobs of the queue emails\n"
    assert parsed(run("drain", "emails", "--yes", "--delayed", "--json"))["deleted"] == 1
    counts = emails.get_job_counts()
    assert (counts.waiting, counts.active, counts.delayed) == (0, 1, 0)


def test_clean_deletes_old_jobs_of_one_state(
    run: Run, emails: BlockingQueue, db: redis.Redis
) -> None:
    for id in ("1-1", "2-1", "3-1"):
        db.xadd(KEYS.dlq, {"d": "x"}, id=id)
    stored.bury(db, KEYS, b"young")
    emails.add("a", 1)
    emails.add("b", 1, delay_ms=60_000)
    clean = partial(run, "clean", "emails", "--yes")
    assert clean("--older-than", "1h", "--limit", "2").out == "deleted 2 jobs of the queue emails\n"
    assert clean("--older-than", "1h").out == "deleted 1 job of the queue emails\n"
    for state in ("waiting", "delayed"):
        assert parsed(clean("--state", state, "--older-than", "1h", "--json"))["deleted"] == 0
    assert clean("--state", "completed").code == 2
    counts = emails.get_job_counts()
    assert (counts.waiting, counts.delayed, counts.dead) == (1, 1, 1)


def test_obliterate_leaves_no_key_and_spares_other_queues(
    run: Run, emails: BlockingQueue, db: redis.Redis
) -> None:
    emails.add("a", 1)
    emails.add("b", 1, delay_ms=60_000, job_id="j")
    run("add", "emails2", "a")
    others = set(db.scan_iter("{chasqui:emails2}*"))
    done = run("obliterate", "emails", "--yes")
    assert (done.code, done.out.startswith("deleted the queue emails (")) == (0, True)
    assert set(db.scan_iter()) == others
    again = run("obliterate", "emails", "--yes")
    assert (again.code, again.out) == (3, "")
    assert "chasqui queues" in again.err


def test_obliterate_is_refused_while_jobs_run(
    run: Run, on_terminal: Run, emails: BlockingQueue, db: redis.Redis
) -> None:
    emails.add("a", 1)
    start_one(db)
    for done in (run("obliterate", "emails", "--yes"), on_terminal("", "obliterate", "emails")):
        assert (done.code, done.out) == (1, "")
        assert done.err == (
            "chasqui: queue 'emails' is busy with 1 job: stop its workers, or use --force\n"
        )
    assert run("obliterate", "emails", "--yes", "--force").code == 0
    assert db.exists(KEYS.stream) == 0


@pytest.mark.parametrize(("answer", "code"), [("emails\n", 0), ("y\n", 1), ("\n", 1)])
def test_obliterate_asks_for_the_name_of_the_queue(
    on_terminal: Run, emails: BlockingQueue, db: redis.Redis, answer: str, code: int
) -> None:
    emails.add("a", 1)
    done = on_terminal(answer, "obliterate", "emails")
    question = "This deletes the queue emails with 1 job. Type its name to go on: "
    assert done.err == question + ("Error: aborted\n" if code else "")
    assert done.code == code
    assert db.exists(KEYS.stream) == code


@pytest.mark.parametrize(
    ("args", "question"),
    [
        (("drain", "emails"), "Delete 1 waiting job of queue emails? [y/N]: "),
        (
            ("drain", "emails", "--delayed"),
            "Delete 1 waiting or delayed job of queue emails? [y/N]: ",
        ),
        (
            ("clean", "emails", "--state", "waiting"),
            "Delete up to 1000 waiting jobs of queue emails? [y/N]: ",
        ),
    ],
)
def test_deleting_commands_need_a_confirmation(
    run: Run, on_terminal: Run, emails: BlockingQueue, args: tuple[str, ...], question: str
) -> None:
    emails.add("a", 1)
    refused = run(*args)
    assert (refused.code, refused.out) == (2, "")
    assert "--yes" in refused.err
    assert on_terminal("n\n", *args) == Done(1, "", f"{question}Error: aborted\n")
    assert emails.get_job_counts().waiting == 1
    assert on_terminal("y\n", *args).err == question
    assert emails.get_job_counts().waiting == 0


@pytest.mark.parametrize("args", [("dlq", "replay", "q"), ("obliterate", "q")], ids=" ".join)
def test_without_a_terminal_there_is_no_prompt(run: Run, args: tuple[str, ...]) -> None:
    done = run(*args, stdin=b"y\nq\n")
    assert (done.code, done.out) == (2, "")
    assert "cannot ask for confirmation without a terminal: give --yes" in done.err
