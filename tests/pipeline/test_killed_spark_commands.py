"""Commands that choose by Spark are killed with -9 and run again: nothing is lost or doubled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tests.pipeline.dying_letters import JOBS, add_dead_letters, dead, ids, waiting
from tests.pipeline.killing import HEARD, UNHEARD, KillingProxy, done, killed, number, proxy
from tests.servers import Server
from tests.spark import sampling

# Each starts Spark twice or more.
pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 4000
ALL_POINTS = ((1, UNHEARD), (COUNT // 2, HEARD), (COUNT, UNHEARD))
"""Progress of a command when it is killed, and whether it has reported it."""
JOBS_POINTS, MESSAGE_POINTS, REPLAY_POINTS = (
    sampling.some(f"killed {what}", ALL_POINTS, 1) for what in ("jobs", "messages", "replay")
)
KEYS = Keys()
_STARTED = re.compile(r"redrive \w+:\w+/(\w+): (\d+) letters")


@pytest.fixture
def way(server: Server) -> Iterator[KillingProxy]:
    with proxy(server.url) as opened:
        yield opened


def test_jobs_are_redriven_once_also_after_a_kill(
    way: KillingProxy, db: redis.Redis, tmp_path: Path
) -> None:
    letters_before = add_dead_letters(db, COUNT)
    everyone, log, id = ids(letters_before), tmp_path / "log", ""
    command = ("dlq", "redrive", "chasqui:orders", "--master", "local[1]")
    for min_count, heard in JOBS_POINTS:
        seen = partial(lambda min_count: db.xlen(JOBS.stream) >= min_count, min_count)
        before = len(waiting(db))
        again = ("--id", id) if id else ()
        started = _STARTED.search(killed(way, log, seen, *command, *again, heard=heard))
        assert started is not None
        # The first line is the id to resume with, and the only one.
        id = id or started[1]
        assert (started[1], int(started[2])) == (id, COUNT - before)
        assert db.smembers(JOBS.redrives) == {id.encode()}
        moved = [job for job, _, _ in waiting(db)]
        assert min_count <= len(moved) < min_count + 500
        assert moved + ids(dead(db)) == everyone
        assert number(db.hget(JOBS.redrive(id), "moved")) == len(moved)
        assert db.xlen(JOBS.redriven(id)) == len(moved)
    assert db.hget(JOBS.redrive(id), "state") == b"open"
    result = json.loads(done(way, log, *command, "--id", id, "--json"))
    assert (result["state"], result["moved"]) == ("done", COUNT)
    assert ([job for job, _, _ in waiting(db)], dead(db)) == (everyone, [])
    assert db.hget(JOBS.redrive(id), "state") == b"done"
    ledger: Any = db.xrange(JOBS.redriven(id))
    stream: Any = db.xrange(JOBS.stream)
    assert [fields[b"to"] for _, fields in ledger] == [entry for entry, _ in stream]


def test_messages_are_redriven_once_although_the_command_is_killed(
    way: KillingProxy, rsmq: Rsmq, db: redis.Redis, tmp_path: Path
) -> None:
    rsmq.create_queue("q")
    rsmq.create_queue("q-dead", maxsize=-1)
    sent = rsmq.send_messages("q-dead", [b"m%d" % n for n in range(COUNT)])
    log = tmp_path / "log"
    command = ("dlq", "redrive", "rsmq:q", "--id", "mine", "--master", "local[1]")
    for min_count, heard in MESSAGE_POINTS:
        seen = partial(lambda min_count: db.zcard("rsmq:q") >= min_count, min_count)
        killed(way, log, seen, *command, heard=heard)
        moved = _ids(db, "q")
        assert min_count <= len(moved) < min_count + 500
        assert moved + _ids(db, "q-dead") == sent
        assert number(db.hget(KEYS.redrive("q", "mine"), "moved")) == len(moved)
    started = json.loads(done(way, log, *command, "--json"))
    assert (started["state"], started["moved"]) == ("done", COUNT)
    assert (_ids(db, "q"), _ids(db, "q-dead")) == (sent, [])


def test_a_replay_goes_on_where_it_was_killed(
    way: KillingProxy, server: Server, db: redis.Redis, tmp_path: Path
) -> None:
    bodies = [b"body %d" % n for n in range(COUNT)]
    with Rsmq(server.url, journal=["orders"]) as recorded:
        recorded.create_queue("orders")
        recorded.send_messages("orders", bodies)
    log, lake = tmp_path / "log", str(tmp_path / "lake")
    done(way, log, "run", "--once", "--lake", lake, "--master", "local[1]")
    command = ("replay", "--from", lake, "--to", "rsmq:again", "--id", "r", "--master", "local[1]")
    for min_count, heard in REPLAY_POINTS:
        seen = partial(lambda min_count: db.zcard("rsmq:again") >= min_count, min_count)
        killed(way, log, seen, *command, heard=heard)
        sent = _bodies(db, "again")
        assert min_count <= len(sent) < min_count + 1000
        assert sent == bodies[: len(sent)]
        assert number(db.hget(KEYS.fence("again", "replay-r"), "last")) == len(sent)
    started = json.loads(done(way, log, *command, "--json"))
    assert started["sent"] + started["sent_before"] == COUNT
    assert started["sent_before"] >= min_count
    assert _bodies(db, "again") == bodies
    origins: Any = db.hmget(started["origins"], _ids(db, "again"))
    assert [each.decode() for each in origins] == _ids(db, "orders")


def _ids(db: redis.Redis, queue: str) -> list[str]:
    found: Any = db.zrange(f"rsmq:{queue}", 0, -1)
    return [id.decode() for id in found]


def _bodies(db: redis.Redis, queue: str) -> list[bytes]:
    found: Any = db.hmget(f"rsmq:{queue}:Q", _ids(db, queue))
    return list(found)
