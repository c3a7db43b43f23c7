"""Late actions of a leader have no effect after a takeover or a change of the queue."""

from __future__ import annotations

import signal
from typing import Any

import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import GROUP, RETURNED, Keys
from tambomq.chasqui.ops import leader as leader_ops
from tambomq.chasqui.ops.leader import DueSpec, LeaderConfig
from tambomq.clock import now_ms
from tambomq.store.sync import Store
from tests.chasqui.leading import HOLDER, LONG_AGO, every, member, members, promoter, put_spec
from tests.chasqui.working import Process
from tests.servers import Server, eventually

HOUR = 3_600_000


def test_a_job_scheduled_again_stays_cancellable_despite_a_late_leader(
    store: Store, blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    blocking.add("n", 1, job_id="a", delay_ms=HOUR)
    blocking.add("n", 1, job_id="b", delay_ms=HOUR)
    db.zadd(keys.delayed, dict.fromkeys(members(db, keys), LONG_AGO))
    promotion = store.run(leader_ops.promote(LeaderConfig(keys, HOLDER)))
    assert promotion is not None
    assert sorted(promotion.ids) == ["a", "b"]
    # Its marker is deleted, so the id can be used again before the leader deletes the indexes.
    db.delete(keys.marker("a"))
    blocking.add("n", 2, job_id="a", delay_ms=HOUR)
    assert store.run(leader_ops.forget_indexes(keys, promotion.ids)) == 1
    assert not db.exists(keys.index("b"))
    assert blocking.cancel_delayed("a")


def test_only_the_leader_puts_a_spec_off_and_only_if_it_is_due_when_it_was(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    due, now = DueSpec("k", LONG_AGO), now_ms()
    put_spec(db, keys, every(), LONG_AGO, "k")
    put_off = leader_ops.put_off(LeaderConfig(keys, HOLDER), due, now)
    for holder in (None, "tambo-b"):
        if holder:
            db.set(keys.scheduler_lock, holder)
        assert not store.run(put_off)
    db.set(keys.scheduler_lock, HOLDER)
    db.zadd(keys.repeat, {"k": now + HOUR})
    assert not store.run(put_off), "somebody has upserted it"
    assert db.zscore(keys.repeat, "k") == now + HOUR
    db.zadd(keys.repeat, {"k": LONG_AGO})
    assert store.run(put_off)
    assert db.zscore(keys.repeat, "k") == now
    assert not store.run(leader_ops.put_off(LeaderConfig(keys, HOLDER), DueSpec("gone", 5), now))
    assert db.zcard(keys.repeat) == 1


def consumers(db: redis.Redis, keys: Keys) -> set[str]:
    found: Any = db.xinfo_consumers(keys.stream, GROUP)
    return {each["name"].decode() for each in found}


def test_consumers_of_killed_workers_leave_the_group_when_they_hold_nothing(
    server: Server, store: Store, db: redis.Redis, keys: Keys
) -> None:
    db.xgroup_create(keys.stream, GROUP, mkstream=True)
    with Process(server.url, keys.queue) as process:
        eventually(lambda: len(consumers(db, keys)) == 1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    # A chosen name, one that holds a job, an engine's, and `RETURNED`.
    db.sadd(keys.signs[3], "mine")
    db.xadd(keys.stream, {"d": b"x"})
    db.xreadgroup(GROUP, "tambo-holds", {keys.stream: ">"})
    for name in ("mine", "c-engine", "spark-query", RETURNED):
        db.xgroup_createconsumer(keys.stream, GROUP, name)
    assert store.run(leader_ops.prune_consumers(keys)) == 0, "they may be alive"
    eventually(lambda: store.run(leader_ops.prune_consumers(keys, 1)) == 0)
    assert consumers(db, keys) == {"tambo-holds", "c-engine", "spark-query", RETURNED}
    assert not db.exists(keys.signs[3])


async def test_a_leader_prunes_dead_consumers(server: Server, db: redis.Redis, keys: Keys) -> None:
    db.zadd(keys.delayed, {member("a"): now_ms() + HOUR})
    db.xgroup_create(keys.stream, GROUP, mkstream=True)
    async with promoter(server.url, keys) as leader:
        before = _calls(db)
        await leader.turn()
        first = _calls(db) - before
        await leader.turn()
        assert first > _calls(db) - before - first
    assert db.zcard(keys.delayed) == 1


def _calls(db: redis.Redis) -> int:
    stats: Any = db.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))
