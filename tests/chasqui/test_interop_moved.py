"""A queue that moves between servers with and without IDMP, CLAIM and XACKDEL.

The stored data is the same on both. It is copied key by key, since the servers do not read each
other's dumps, and is used there without conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tambomq.chasqui.keys import Keys
from tests.peers import fixtures
from tests.peers.chasqui import Chasquis, Party, Scene
from tests.servers import Server, eventually

pytestmark = pytest.mark.interop

chasquis, scene, _ = fixtures.chasqui

AT_ONCE = {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}
HOUR_MS = 3_600_000
IDLE_MS = 60_000
"""Messages that were in flight can be received by any consumer after the move."""


@pytest.fixture
def elsewhere(
    scene: Scene, chasquis: Chasquis, running: Callable[[str], Server]
) -> Iterator[Scene]:
    """The same queue on a server that the engine cannot use."""
    with Scene(running("valkey").url, scene.keys, chasquis) as opened:
        yield opened


def move(keys: Keys, source: redis.Redis, target: redis.Redis) -> None:
    """Write everything of a queue again, but for the locks of its leaders."""
    for key in source.scan_iter(match=keys.pattern):
        if key.endswith(b":lock"):
            continue
        kind: Any = source.type(key)
        _MOVES[kind](key, source, target)
        ttl: Any = source.pttl(key)
        if ttl > 0:
            target.pexpire(key, ttl)
        source.delete(key)


def _move_stream(key: bytes, source: redis.Redis, target: redis.Redis) -> None:
    rows: Any = source.xrange(key)
    for id, fields in rows:
        target.xadd(key, fields, id=id)
    groups: Any = source.xinfo_groups(key)
    for group in groups:
        name: Any = group["name"]
        target.xgroup_create(key, name, group["last-delivered-id"], mkstream=True)
        held: Any = source.xpending_range(key, name, "-", "+", 1000)
        for each in held:
            how = {"idle": IDLE_MS, "retrycount": each["times_delivered"], "force": True}
            target.xclaim(key, name, each["consumer"], 0, [each["message_id"]], **how)


def _move_zset(key: bytes, source: redis.Redis, target: redis.Redis) -> None:
    rows: Any = source.zrange(key, 0, -1, withscores=True)
    target.zadd(key, dict(rows))


def _move_hash(key: bytes, source: redis.Redis, target: redis.Redis) -> None:
    fields: Any = source.hgetall(key)
    target.hset(key, mapping=fields)


def _move_string(key: bytes, source: redis.Redis, target: redis.Redis) -> None:
    value: Any = source.get(key)
    target.set(key, value)


_MOVES: dict[bytes, Callable[[bytes, redis.Redis, redis.Redis], None]] = {
    b"stream": _move_stream,
    b"zset": _move_zset,
    b"hash": _move_hash,
    b"string": _move_string,
}


def fill(scene: Scene, party: Party) -> None:
    """Leave in the queue something of every kind."""
    party.work(store_results=True)
    party.add("done", {"return": "kept"}, job_id="done")
    party.add("dead", {"fail": 2}, attempts=2, backoff=AT_ONCE, job_id="dead")
    party.add("poison", {"poison": True}, job_id="poison")
    eventually(lambda: scene.db.xlen(scene.keys.dlq) == 2 and scene.is_empty())
    party.stop()
    party.add("", 1)
    party.add("named", 2, job_id="two", attempts=5, backoff=AT_ONCE)
    party.add("later", 3, delay_ms=600, attempts=5)
    party.add("cancelled", 4, delay_ms=HOUR_MS, job_id="four")
    party.add("once", 5, delay_ms=600, job_id="five")
    every = {"kind": "every", "interval_ms": 500}
    party.do("upsert_repeatable_job", "tick", 6, repeat=every, limit=2)
    daily = {"kind": "cron", "expression": "0 4 * * *", "tz": "Europe/Berlin"}
    party.do("upsert_repeatable_job", "daily", 7, repeat=daily, missed_fires={"kind": "fire-once"})


def check(scene: Scene, party: Party) -> None:
    """Go on where the other left off."""
    assert party.do("get_job_result", "done") == "kept"
    reasons = {letter["name"]: letter["reason"] for letter in party.do("peek_dlq")}
    assert reasons == {"dead": "retries_exhausted", "poison": "unrecoverable"}
    assert party.do("cancel_delayed", "four") is True
    party.add("twice", 8, delay_ms=100, job_id="five")
    keys = {spec["key"] for spec in party.do("get_repeatable_jobs")}
    assert keys == {"tick::every:500", "daily::cron:0 4 * * *:Europe/Berlin"}
    party.work(scheduler_tick_ms=50)
    wanted = [("", 1), ("later", 3), ("named", 2), ("once", 5), ("tick", 6), ("tick", 6)]
    eventually(lambda: sorted((run.name, run.data) for run in scene.ran()) == wanted)
    eventually(scene.is_empty)
    assert [spec["job_name"] for spec in party.do("get_repeatable_jobs")] == ["daily"]
    assert party.do("replay_dlq") == 2
    eventually(lambda: scene.db.xlen(scene.keys.dlq) == 2 and scene.is_empty())
    replayed = scene.ran(lambda run: run.name in reasons)
    assert sorted(run.name for run in replayed) == ["dead", "dead", "poison"]


def test_a_queue_filled_without_the_new_commands_is_finished_by_the_engine(
    scene: Scene, elsewhere: Scene
) -> None:
    fill(elsewhere, elsewhere.get("ours"))
    move(scene.keys, elsewhere.db, scene.db)
    check(scene, scene.get("theirs"))


def test_a_queue_filled_by_the_engine_is_finished_without_the_new_commands(
    scene: Scene, elsewhere: Scene
) -> None:
    fill(scene, scene.get("theirs"))
    move(scene.keys, scene.db, elsewhere.db)
    check(elsewhere, elsewhere.get("ours"))


def test_a_job_of_a_dead_worker_moves_with_its_delivery_count(
    scene: Scene, elsewhere: Scene
) -> None:
    party, stream = elsewhere.get("ours"), scene.keys.stream
    ids = [party.add("held", n, attempts=2) for n in range(2)]
    elsewhere.db.xgroup_create(stream, "default", "0")
    rows: Any = elsewhere.db.xreadgroup("default", "dead", {stream: ">"})
    # The first was delivered so often that it is to blame.
    entry = rows[0][1][0][0]
    elsewhere.db.xclaim(stream, "default", "dead", 0, [entry], retrycount=3)
    move(scene.keys, elsewhere.db, scene.db)
    scene.get("theirs").work()
    eventually(lambda: [run.id for run in scene.ran()] == ids[1:] and scene.is_empty())
    letters = scene.get("theirs").do("peek_dlq")
    assert [letter["reason"] for letter in letters] == ["retries_exhausted"]
