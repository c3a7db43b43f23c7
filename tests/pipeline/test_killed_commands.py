"""The commands themselves are killed with -9 and run again: each entry is in exactly one place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tambomq.bulk.redrives import Redrive
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.ops.add import Policy
from tambomq.gomq import keys as gomq_keys
from tambomq.pipeline.dlq import redrive
from tambomq.pipeline.dlq.chasqui import ChasquiDlq
from tambomq.pipeline.dlq.redrive import RedriveOptions, RedrivePlan
from tambomq.pipeline.dlq.rsmq import RsmqDlq
from tambomq.pipeline.dlq.selection import Selection
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.sync import Store
from tests.pipeline.dying_letters import JOBS, add_dead_letters, dead, ids, waiting
from tests.pipeline.killing import HEARD, UNHEARD, KillingProxy, done, killed, number, proxy
from tests.pipeline.transfer.test_migrate import Queues
from tests.servers import Server

COUNT = 4000
JSON = "--json"
MESSAGES = RsmqKeys()


@pytest.fixture
def way(server: Server) -> Iterator[KillingProxy]:
    with proxy(server.url) as opened:
        yield opened


def redriven(dlq: ChasquiDlq | RsmqDlq) -> None:
    """Redrive all letters, as ``r``."""
    selections = [Selection(letter.id) for letter in dlq.letters()]
    started = Redrive("r", until=dlq.until(), selected=COUNT, dead=getattr(dlq, "dead", ""))
    assert (
        redrive.run(dlq, RedrivePlan(started, selections, is_known=False), RedriveOptions()).moved
        == COUNT
    )


def held(db: redis.Redis, queue: str) -> list[str]:
    """Return the ids of the messages in a queue of RSMQ, in their order."""
    found: Any = db.zrange(f"rsmq:{queue}", 0, -1)
    return [id.decode() for id in found]


# ── undo ─────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_jobs_are_moved_back_once_also_after_a_kill(
    way: KillingProxy, store: Store, server: Server, db: redis.Redis, tmp_path: Path
) -> None:
    letters_before = add_dead_letters(db, COUNT)
    everyone = sorted(ids(letters_before))
    redriven(ChasquiDlq(store, server.url, "orders", Policy()))
    undo = ("dlq", "undo", "chasqui:orders/r")
    for back, heard in ((1, UNHEARD), (COUNT // 2, HEARD), (COUNT, UNHEARD)):
        seen = partial(lambda min_count: db.xlen(JOBS.dlq) >= min_count, back)
        killed(way, tmp_path / "log", seen, *undo, heard=heard)
        there = dead(db)
        assert back <= len(there) < back + 500
        assert number(db.hget(JOBS.redrive("r"), "undone")) == len(there)
        assert sorted([id for id, _, _ in waiting(db)] + ids(there)) == everyone
    started = json.loads(done(way, tmp_path / "log", *undo, JSON))
    assert started == {"id": "chasqui:orders/r", "put_back": 0, "running": 0, "consumed": 0}
    assert dead(db) == letters_before
    assert (db.xlen(JOBS.redriven("r")), number(db.hget(JOBS.redrive("r"), "undone"))) == (0, COUNT)


@pytest.mark.slow
def test_messages_are_put_back_once_although_the_command_is_killed(
    way: KillingProxy, store: Store, rsmq: Rsmq, db: redis.Redis, tmp_path: Path
) -> None:
    rsmq.create_queue("q")
    rsmq.create_queue("q-dead", maxsize=-1)
    sent = rsmq.send_messages("q-dead", [b"m%d" % n for n in range(COUNT)])
    redriven(RsmqDlq(store, MESSAGES, "q"))
    undo = ("dlq", "undo", "rsmq:q/r")
    for back, heard in ((1, UNHEARD), (COUNT // 2, HEARD), (COUNT, UNHEARD)):
        seen = partial(lambda min_count: db.zcard("rsmq:q-dead") >= min_count, back)
        killed(way, tmp_path / "log", seen, *undo, heard=heard)
        there = held(db, "q-dead")
        assert back <= len(there) < back + 500
        assert sorted(held(db, "q") + there) == sorted(sent)
    started = json.loads(done(way, tmp_path / "log", *undo, JSON))
    assert started == {"id": "rsmq:q/r", "put_back": 0, "running": 0, "consumed": 0}
    assert (held(db, "q"), held(db, "q-dead")) == ([], sent)
    assert number(db.hget(MESSAGES.redrive("q", "r"), "undone")) == COUNT


# ── migrate ──────────────────────────────────────────────────────────────────


def _transit(db: redis.Redis) -> int:
    """How much is between two queues."""
    found: Any = [*db.scan_iter("*:transit"), *db.scan_iter("TRANSIT_*")]
    return sum(number(db.llen(key)) for key in found)


def _stored(db: redis.Redis, protocol: str) -> list[bytes]:
    """Return what a queue named b has, as it is stored."""
    if protocol == "rsmq":
        found: Any = db.zrange("rsmq:b", 0, -1)
        bodies: Any = db.hmget("rsmq:b:Q", found)
        return list(bodies)
    if protocol == "chasqui":
        rows: Any = db.xrange(ChasquiKeys("b").stream)
        return [fields[b"d"] for _, fields in rows]
    elements: Any = db.lrange(gomq_keys.queue("b"), 0, -1)
    return list(elements)


def _digest(stored: list[bytes]) -> str:
    """The checksum of *stored*: the low 48 bits of a sum of the first six bytes of their SHA-1."""
    total = sum(
        int.from_bytes(hashlib.sha1(each, usedforsecurity=False).digest()[:6]) for each in stored
    )
    return f"{total % (1 << 48):012x}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "target"), [("rsmq", "chasqui"), ("chasqui", "gomq"), ("gomq", "rsmq")]
)
def test_a_killed_migration_loses_and_duplicates_nothing(
    way: KillingProxy, server: Server, db: redis.Redis, tmp_path: Path, source: str, target: str
) -> None:
    queues, bodies = Queues(server.url, db), [f"body {n}" for n in range(COUNT)]
    queues.fill(source, "a", bodies)
    if target == "rsmq":
        queues.fill(target, "b", [])

    def come() -> int:
        return len(queues.waiting(target, "b"))

    move = ("migrate", f"{source}:a", f"{target}:b", "--wait", "0s")
    log = tmp_path / "log"
    # The first batch has left; a later one has arrived, unacknowledged; another is to leave.
    killed(way, log, lambda: _transit(db) > 0, *move)
    assert (come(), _transit(db) > 0) == (0, True)
    killed(way, log, lambda: come() >= COUNT // 4 and _transit(db) > 0, *move)
    assert (come() >= COUNT // 4, _transit(db) > 0) == (True, True)
    killed(way, log, lambda: come() >= COUNT // 2 and not _transit(db), *move, heard=HEARD)
    arrived, left = queues.waiting(target, "b"), queues.waiting(source, "a")
    assert len(arrived) >= COUNT // 2
    assert arrived + left == bodies
    killed(way, log, lambda: come() == COUNT and not _transit(db), *move)
    assert (queues.waiting(target, "b"), queues.waiting(source, "a")) == (bodies, [])
    started = json.loads(done(way, log, *move, JSON))
    assert (started["moved"], started["total"]) == (0, COUNT)
    assert started["digest"] == _digest(_stored(db, target))
    assert (queues.waiting(target, "b"), queues.waiting(source, "a")) == (bodies, [])
    assert [*db.scan_iter("*:move:*"), *db.scan_iter("MOVE_*"), *db.scan_iter("TRANSIT_*")] == []
