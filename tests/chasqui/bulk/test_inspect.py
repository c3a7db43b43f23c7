"""Reads about one job's queue, on every kind of server."""

from __future__ import annotations

import pytest
import redis

from tambomq.chasqui.bulk import inspect
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.errors import StoreError
from tambomq.store.sync import Store

KEYS = Keys("q")


def test_a_queue_without_workers_has_no_group(each: Store, each_db: redis.Redis) -> None:
    each_db.xadd(KEYS.stream, {"d": "x"})
    assert each.run(inspect.last_delivered(KEYS)) is None
    with pytest.raises(StoreError):
        each.run(inspect.consumers(KEYS))


def test_workers_and_what_they_have_are_read(each: Store, each_db: redis.Redis) -> None:
    each_db.xadd(KEYS.stream, {"d": "x"}, id="5-0")
    each_db.xgroup_create(KEYS.stream, GROUP, "0")
    each_db.xreadgroup(GROUP, "pay-1", {KEYS.stream: ">"})
    assert each.run(inspect.last_delivered(KEYS)) == "5-0"
    (worker,) = each.run(inspect.consumers(KEYS))
    assert (worker.name, worker.pending) == ("pay-1", 1)


def test_pause_promoter_limiter_and_result_are_read(each: Store, each_db: redis.Redis) -> None:
    assert (each.run(inspect.is_paused(KEYS)), each.run(inspect.promoter(KEYS))) == (False, "")
    assert each.run(inspect.limiter(KEYS)) is None
    each_db.set(KEYS.paused, "1")
    each_db.set(KEYS.promoter_lock, "tambo-1")
    each_db.hset(KEYS.limiter, mapping={"started": "3", "ends": "77"})
    each_db.set(KEYS.result("j"), b"abcdef")
    assert (each.run(inspect.is_paused(KEYS)), each.run(inspect.promoter(KEYS))) == (
        *(True, "tambo-1"),
    )
    assert each.run(inspect.limiter(KEYS)) == inspect.LimiterState(3, 77)
    assert each.run(inspect.result_size(KEYS, "j")) == 6
    assert each.run(inspect.result_head(KEYS, "j", 4)) == b"abcd"


def test_jobs_ahead_are_counted_up_to_a_limit(
    each: Store, each_db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with each_db.pipeline() as pipe:
        for number in range(1, 1201):
            pipe.xadd(KEYS.stream, {"d": "x"}, id=f"{number}-0")
        pipe.execute()
    assert each.follow(inspect.count_ahead(KEYS, "100-0", "1101-0")) == (1000, True)
    assert each.follow(inspect.count_ahead(KEYS, "5-0", "6-0")) == (0, True)
    monkeypatch.setattr(inspect, "MAX_AHEAD", 500)
    counted, is_exact = each.follow(inspect.count_ahead(KEYS, "0-0", "1200-0"))
    assert (counted >= 500, is_exact) == (True, False)
