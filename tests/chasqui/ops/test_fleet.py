"""The calls for many queues at once, and the effect of their scripts on each queue."""

from __future__ import annotations

import redis

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.fleet import Leadership, due_queues, renew_locks
from tambomq.clock import now_ms
from tambomq.store.sync import Store
from tests.chasqui.leading import member

A, B, C = Keys("a"), Keys("b"), Keys("c")
FAR_MS = 3_600_000


def test_queues_with_a_job_due_soon_are_found(store: Store, db: redis.Redis) -> None:
    db.zadd(A.delayed, {member("later"): now_ms() + FAR_MS})
    db.zadd(B.delayed, {member("soon"): now_ms() + 200, member("later"): now_ms() + FAR_MS})
    assert store.run(due_queues([A, B, C], 60_000)) == [1]
    assert store.run(due_queues([A, B, C], 2 * FAR_MS)) == [0, 1]


def test_a_queue_that_cannot_be_read_is_found_and_hides_no_other(
    store: Store, db: redis.Redis
) -> None:
    db.set(A.delayed, "no zset")
    db.zadd(C.delayed, {member("due"): 1})
    assert store.run(due_queues([A, B, C], 0)) == [0, 2]


def test_free_locks_are_taken_and_those_of_others_are_not(store: Store, db: redis.Redis) -> None:
    db.set(B.promoter_lock, "another")
    db.zadd(C.repeat, {"spec": 12_345})
    found = store.run(renew_locks([A, B, C], "me", now_ms())).queues
    assert found == [
        Leadership(promotes=True, schedules=True, next_fire_ms=None),
        Leadership(promotes=False, schedules=True, next_fire_ms=None),
        Leadership(promotes=True, schedules=True, next_fire_ms=12_345),
    ]
    assert db.mget(A.promoter_lock, B.promoter_lock) == [b"me", b"another"]
    assert 0 < db.pttl(A.promoter_lock) <= 5_000


def test_a_lock_is_written_again_once_part_of_its_time_is_over(
    store: Store, db: redis.Redis
) -> None:
    db.set(A.promoter_lock, "me", px=500)
    db.set(A.scheduler_lock, "me", px=90_000)
    store.run(renew_locks([A], "me", now_ms()))
    assert db.pttl(A.promoter_lock) > 3_000
    assert db.pttl(A.scheduler_lock) > 80_000


def test_a_process_with_a_wrong_clock_gives_up_its_scheduler_lock(
    store: Store, db: redis.Redis
) -> None:
    db.set(A.scheduler_lock, "me")
    db.set(B.scheduler_lock, "another")
    found = store.run(renew_locks([A, B], "me", now_ms() + 60_000))
    assert [(each.promotes, each.schedules) for each in found.queues] == [(True, False)] * 2
    assert db.mget(A.scheduler_lock, B.scheduler_lock) == [None, b"another"]


def test_a_damaged_queue_keeps_no_other_from_being_led(store: Store, db: redis.Redis) -> None:
    db.rpush(A.promoter_lock, "no string")
    db.set(A.repeat, "no zset")
    found = store.run(renew_locks([A, B], "me", now_ms())).queues
    assert [each.promotes for each in found] == [False, True]
