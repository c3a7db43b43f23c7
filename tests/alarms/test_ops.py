"""Alarms in Redis: published by several processes, read by all, gone with those who measure."""

from __future__ import annotations

from contextlib import closing

import redis

from tambomq.alarms import ops
from tambomq.alarms.keys import ALARMS
from tambomq.alarms.model import Alarm
from tambomq.store.sync import Store
from tests.servers import Server, eventually

MEMORY = Alarm("memory", "", 95.0, 90.0, 80.0)
DISK = Alarm("disk", "/data", 5.0, 10.0, 20.0)
LONG = 60_000


def test_alarms_are_read_as_they_were_published(each: Store) -> None:
    assert each.run(ops.read_alarms()) == ()
    each.run(ops.raise_alarms("a", (MEMORY, DISK), LONG))
    assert each.run(ops.read_alarms()) == (MEMORY, DISK)
    each.run(ops.raise_alarms("a", (DISK,), LONG))
    assert each.run(ops.read_alarms()) == (DISK,)
    each.run(ops.raise_alarms("a", (), LONG))
    assert each.run(ops.read_alarms()) == ()


def test_nothing_is_left_when_all_alarms_are_cleared(store: Store, db: redis.Redis) -> None:
    store.run(ops.raise_alarms("a", (MEMORY,), LONG))
    store.run(ops.raise_alarms("a", (), LONG))
    assert not db.exists(ALARMS)


def test_the_alarms_of_one_process_do_not_replace_those_of_another(store: Store) -> None:
    store.run(ops.raise_alarms("a", (MEMORY,), LONG))
    store.run(ops.raise_alarms("b", (MEMORY, DISK), LONG))
    found = store.run(ops.read_alarms())
    assert set(found) == {MEMORY, DISK}
    store.run(ops.raise_alarms("b", (), LONG))
    assert store.run(ops.read_alarms()) == (MEMORY,)


def test_alarms_of_a_dead_process_end(store: Store, db: redis.Redis) -> None:
    store.run(ops.raise_alarms("lives", (DISK,), LONG))
    store.run(ops.raise_alarms("dies", (MEMORY,), 1))
    eventually(lambda: store.run(ops.read_alarms()) == (DISK,))
    assert 0 < db.pttl(ALARMS) <= LONG


def test_a_process_that_lives_removes_what_dead_ones_have_left(
    store: Store, db: redis.Redis
) -> None:
    store.run(ops.raise_alarms("lives", (DISK,), LONG))
    db.hset(ALARMS, mapping={"unreadable": "junk"})
    for number in range(3):
        store.run(ops.raise_alarms(f"dead-{number}", (MEMORY,), 1))

    def only_it_is_left() -> bool:
        store.run(ops.raise_alarms("lives", (DISK,), LONG))
        return set(db.hkeys(ALARMS)) == {b"lives", b"unreadable"}

    eventually(only_it_is_left)


def test_alarms_can_be_raised_and_cleared_when_memory_is_full(private_server: Server) -> None:
    with (
        closing(Store(private_server.url)) as store,
        redis.Redis.from_url(private_server.url) as db,
    ):
        db.config_set("maxmemory", "1mb")
        store.run(ops.raise_alarms("a", (MEMORY,), LONG))
        assert store.run(ops.read_alarms()) == (MEMORY,)
        store.run(ops.raise_alarms("a", (), LONG))
        assert store.run(ops.read_alarms()) == ()


def test_what_another_version_has_written_is_left_out(store: Store, db: redis.Redis) -> None:
    store.run(ops.raise_alarms("a", (MEMORY,), LONG))
    db.hset(ALARMS, mapping={"b": "99999999999999 [{}]", "c": "junk", "d": b"99999999999999 \xff"})
    assert store.run(ops.read_alarms()) == (MEMORY,)


def test_memory_is_reported_with_limit_and_policy(private_server: Server) -> None:
    with (
        closing(Store(private_server.url)) as store,
        redis.Redis.from_url(private_server.url) as db,
    ):
        db.config_set("maxmemory", "64mb")
        db.config_set("maxmemory-policy", "allkeys-lru")
        found = store.run(ops.memory())
        assert (found.limit, found.policy) == (64 << 20, "allkeys-lru")
        assert 0 < found.used < found.limit
