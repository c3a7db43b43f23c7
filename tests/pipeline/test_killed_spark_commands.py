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
from tests.pipeline.dying_letters import JOBS, bury, dead, ids, waiting
from tests.pipeline.killing import HEARD, UNHEARD, Door, done, door, killed, number
from tests.servers import Server
from tests.spark import sampling

# Each starts Spark twice or more.
pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 4000
ALL_POINTS = ((1, UNHEARD), (COUNT // 2, HEARD), (COUNT, UNHEARD))
"""How far it has come when it is killed, and whether it knows."""
JOBS_POINTS, MESSAGE_POINTS, REPLAY_POINTS = (
    sampling.some(f"killed {what}", ALL_POINTS, 1) for what in ("jobs", "messages", "replay")
)
KEYS = Keys()
_TOLD = re.compile(r"redrive \w+:\w+/(\w+): (\d+) letters")


@pytest.fixture
def way(server: Server) -> Iterator[Door]:
    with door(server.url) as opened:
        yield opened


def test_jobs_are_redriven_once_whoever_is_killed(
    way: Door, db: redis.Redis, tmp_path: Path
) -> None:
    buried = bury(db, COUNT)
    everyone, log, id = ids(buried), tmp_path / "log", ""
    command = ("dlq", "redrive", "chasqui:orders", "--master", "local[1]")
    for least, heard in JOBS_POINTS:
        seen = partial(lambda least: db.xlen(JOBS.stream) >= least, least)
        before = len(waiting(db))
        again = ("--id", id) if id else ()
        told = _TOLD.search(killed(way, log, seen, *command, *again, heard=heard))
        assert told is not None
        # What is told first is the name under which it goes on, and stays the only one.
        id = id or told[1]
        assert (told[1], int(told[2])) == (id, COUNT - before)
        assert db.smembers(JOBS.redrives) == {id.encode()}
        moved = [job for job, _, _ in waiting(db)]
        assert least <= len(moved) < least + 500
        assert moved + ids(dead(db)) == everyone
        assert number(db.hget(JOBS.redrive(id), "moved")) == len(moved)
        assert db.xlen(JOBS.redriven(id)) == len(moved)
    assert db.hget(JOBS.redrive(id), "state") == b"open"
    told_json = json.loads(done(way, log, *command, "--id", id, "--json"))
    assert (told_json["state"], told_json["moved"]) == ("done", COUNT)
    assert ([job for job, _, _ in waiting(db)], dead(db)) == (everyone, [])
    assert db.hget(JOBS.redrive(id), "state") == b"done"
    ledger: Any = db.xrange(JOBS.redriven(id))
    stream: Any = db.xrange(JOBS.stream)
    assert [fields[b"to"] for _, fields in ledger] == [entry for entry, _ in stream]


def test_messages_are_redriven_once_whoever_is_killed(
    way: Door, rsmq: Rsmq, db: redis.Redis, tmp_path: Path
) -> None:
    rsmq.create_queue("q")
    rsmq.create_queue("q-dead", maxsize=-1)
    sent = rsmq.send_messages("q-dead", [b"m%d" % n for n in range(COUNT)])
    log = tmp_path / "log"
    command = ("dlq", "redrive", "rsmq:q", "--id", "mine", "--master", "local[1]")
    for least, heard in MESSAGE_POINTS:
        seen = partial(lambda least: db.zcard("rsmq:q") >= least, least)
        killed(way, log, seen, *command, heard=heard)
        moved = _ids(db, "q")
        assert least <= len(moved) < least + 500
        assert moved + _ids(db, "q-dead") == sent
        assert number(db.hget(KEYS.redrive("q", "mine"), "moved")) == len(moved)
    told = json.loads(done(way, log, *command, "--json"))
    assert (told["state"], told["moved"]) == ("done", COUNT)
    assert (_ids(db, "q"), _ids(db, "q-dead")) == (sent, [])


def test_a_replay_goes_on_where_it_was_killed(
    way: Door, server: Server, db: redis.Redis, tmp_path: Path
) -> None:
    bodies = [b"body %d" % n for n in range(COUNT)]
    with Rsmq(server.url, journal=["orders"]) as recorded:
        recorded.create_queue("orders")
        recorded.send_messages("orders", bodies)
    log, lake = tmp_path / "log", str(tmp_path / "lake")
    done(way, log, "run", "--once", "--lake", lake, "--master", "local[1]")
    command = ("replay", "--from", lake, "--to", "rsmq:again", "--id", "r", "--master", "local[1]")
    for least, heard in REPLAY_POINTS:
        seen = partial(lambda least: db.zcard("rsmq:again") >= least, least)
        killed(way, log, seen, *command, heard=heard)
        sent = _bodies(db, "again")
        assert least <= len(sent) < least + 1000
        assert sent == bodies[: len(sent)]
        assert number(db.hget(KEYS.fence("again", "replay-r"), "last")) == len(sent)
    told = json.loads(done(way, log, *command, "--json"))
    assert told["sent"] + told["sent_before"] == COUNT
    assert told["sent_before"] >= least
    assert _bodies(db, "again") == bodies
    origins: Any = db.hmget(told["origins"], _ids(db, "again"))
    assert [each.decode() for each in origins] == _ids(db, "orders")


def _ids(db: redis.Redis, queue: str) -> list[str]:
    found: Any = db.zrange(f"rsmq:{queue}", 0, -1)
    return [id.decode() for id in found]


def _bodies(db: redis.Redis, queue: str) -> list[bytes]:
    found: Any = db.hmget(f"rsmq:{queue}:Q", _ids(db, queue))
    return list(found)
