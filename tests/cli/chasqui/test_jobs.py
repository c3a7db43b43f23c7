"""``chasqui job`` and ``chasqui workers``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import encode_fresh
from tambomq.cli.chasqui import chasqui
from tests.chasqui import stored
from tests.cli.transcript import Done, call
from tests.servers.run import Server

Run = Callable[..., Done]
KEYS = Keys("emails")
HOUR_MS = 3_600_000


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
    assert done.code == 0, done
    return json.loads(done.out)


def test_a_job_is_shown_with_its_state(run: Run, emails: BlockingQueue) -> None:
    emails.add("welcome", {"to": "ada"}, job_id="j1")
    shown = run("job", "show", "emails", "j1").out
    assert "│ state " in shown
    assert "┆ waiting " in shown
    found = parsed(run("job", "show", "emails", "j1", "--json"))
    assert (found["state"], found["name"], found["data"]) == ("waiting", "welcome", {"to": "ada"})
    missing = run("job", "show", "emails", "nobody")
    assert (missing.code, missing.out) == (3, "")
    assert "job nobody is unknown" in missing.err


def test_a_dead_job_is_shown_with_its_traceback(run: Run, db: redis.Redis) -> None:
    body = encode_fresh("j1", b"\x01", 1)
    raised: dict[Any, Any] = {"detail": "'to'", "error_type": "KeyError", "traceback": "Trace\n  x"}
    db.xadd(KEYS.dlq, {"d": body, "reason": "unrecoverable", **raised}, id="5-0")
    shown = run("job", "show", "emails", "j1").out
    assert "┆ KeyError" in shown
    assert shown.endswith("\nTrace\n  x\n")


def test_jobs_are_removed_by_their_ids(run: Run, emails: BlockingQueue, db: redis.Redis) -> None:
    emails.add("welcome", 1, job_id="j1")
    emails.add("welcome", 2, job_id="j2", delay_ms=HOUR_MS)
    assert run("job", "remove", "emails", "j1").code == 2
    done = run("job", "remove", "emails", "j1", "j2", "j3", "--yes")
    assert (done.code, done.out) == (3, "deleted j1\ndeleted j2\n")
    assert "not there on the queue emails: j3" in done.err
    assert (db.xlen(KEYS.stream), db.zcard(KEYS.delayed)) == (0, 0)


def test_jobs_are_retried_by_their_ids(run: Run, emails: BlockingQueue, db: redis.Redis) -> None:
    stored.bury(db, KEYS, encode_fresh("j1", b"\x01", 1))
    emails.add("welcome", 2, job_id="j2")
    done = run("job", "retry", "emails", "j1", "j2", "--json")
    assert done.code == 3
    assert json.loads(done.out) == {"queue": "emails", "retried": ["j1"], "missing": ["j2"]}
    assert (db.xlen(KEYS.dlq), db.xlen(KEYS.stream)) == (0, 2)


def test_workers_are_listed_with_what_they_have(
    run: Run, emails: BlockingQueue, db: redis.Redis
) -> None:
    assert run("workers", "emails").code == 3
    emails.add("welcome", 1, job_id="j1")
    emails.add("", 2, job_id="j2")
    db.xgroup_create(KEYS.stream, "default", "0")
    db.xreadgroup("default", "me", {KEYS.stream: ">"})
    [worker] = parsed(run("workers", "emails", "--json"))["workers"]
    assert (worker["name"], worker["held"]) == ("me", 2)
    assert [(job["id"], job["name"]) for job in worker["jobs"]] == [("j1", "welcome"), ("j2", "")]
    shown = run("workers", "emails").out
    assert "│ workers: emails ┆ idle (ms) ┆ held ┆ job ┆ name    ┆ deliveries │" in shown
    busy = run("job", "remove", "emails", "j1", "--yes")
    assert (busy.code, busy.out) == (1, "")
    assert "'me'" in busy.err
