"""Requests that are repeated because their reply was lost: they undo no other client's change.

A store repeats the same call, and so do these tests.
"""

from __future__ import annotations

import redis

from tambomq.chasqui import BlockingQueue, RepeatPattern
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import admin as admin_ops
from tambomq.chasqui.ops import repeat as repeat_ops
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.clock import now_ms
from tambomq.store.sync import Store

HOUR = 3_600_000


def spec(data: bytes, interval_ms: int = HOUR) -> RepeatSpec:
    return RepeatSpec("k", "n", RepeatPattern.every(interval_ms), data)


def test_a_pause_that_another_ended_stays_ended(
    store: Store, blocking: BlockingQueue, keys: Keys
) -> None:
    pause = admin_ops.pause(keys)
    assert store.run(pause)
    blocking.resume()
    assert store.run(pause)
    assert not blocking.is_paused()
    # Another request is another wish.
    blocking.pause()
    assert blocking.is_paused()


def test_a_queue_that_another_paused_after_a_resume_stays_paused(
    store: Store, blocking: BlockingQueue, keys: Keys
) -> None:
    blocking.pause()
    resume = admin_ops.resume(keys)
    assert store.run(resume)
    blocking.pause()
    assert store.run(resume), "it did what it was asked, the first time"
    assert blocking.is_paused()
    assert blocking.resume()
    assert not blocking.resume()


def test_a_spec_that_another_has_replaced_stays_replaced(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    ours = repeat_ops.upsert(keys, spec(b"\x01"), now_ms())
    theirs = repeat_ops.upsert(keys, spec(b"\x02", 2 * HOUR), now_ms())
    store.run(ours)
    store.run(theirs)
    stored, due = db.hgetall(keys.spec("k")), db.zscore(keys.repeat, "k")
    assert store.run(ours)
    assert (db.hgetall(keys.spec("k")), db.zscore(keys.repeat, "k")) == (stored, due)


def test_a_repeated_upsert_does_not_undo_a_later_change_of_the_spec(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    make, remove = repeat_ops.upsert(keys, spec(b"\x01"), now_ms()), repeat_ops.remove(keys, "k")
    store.run(make)
    assert store.run(remove)
    store.run(make)
    assert not db.exists(keys.repeat)
    store.run(repeat_ops.upsert(keys, spec(b"\x02"), now_ms()))
    assert store.run(remove), "it did what it was asked, the first time"
    assert db.zcard(keys.repeat) == 1
    assert store.run(repeat_ops.remove(keys, "k"))
    assert not store.run(repeat_ops.remove(keys, "k"))


def test_a_job_that_another_has_scheduled_under_a_cancelled_id_stays(
    store: Store, blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    cancel = add_ops.cancel(keys, "a")
    assert not store.run(cancel)
    blocking.add("n", 1, job_id="a", delay_ms=HOUR)
    assert store.run(cancel), "it was not there the first time, so the second is the first"
    blocking.add("n", 2, job_id="a", delay_ms=HOUR)
    assert store.run(cancel)
    assert db.zcard(keys.delayed) == 1
    assert blocking.cancel_delayed("a")
