"""With ``unless_queued`` a fire is skipped while the job of the last one is in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job, MissedFiresPolicy, RepeatPattern, Worker
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.ops import convert as convert_ops
from tambomq.chasqui.wire.repeat import encode_spec
from tambomq.errors import InvalidFormat
from tambomq.store.sync import Store
from tests.chasqui.conftest import working
from tests.chasqui.leading import (
    LONG_AGO,
    every,
    fired,
    members,
    on_each_server,
    promoter,
    put_spec,
    scheduler,
    waiting,
)
from tests.servers import Server, eventually_async

HOUR_MS = 3_600_000
EVERY = RepeatPattern.every(HOUR_MS)
ONCE = MissedFiresPolicy.fire_once()
LATER: dict[str, Any] = {"kind": "fixed", "delay_ms": HOUR_MS, "jitter_ms": 0}


@pytest.fixture
def queue(each_server: Server, keys: Keys) -> Iterator[BlockingQueue]:
    with BlockingQueue(keys.queue, redis_url=each_server.url) as queue:
        yield queue


def recur(queue: BlockingQueue, **options: Any) -> None:
    options = {"unless_queued": True, "missed_fires": ONCE, **options}
    queue.upsert_repeatable_job("tick", 1, repeat=EVERY, job_id="k", **options)


async def fire(server: Server, keys: Keys, **config: Any) -> list[str]:
    """Make the spec due; return the ids of all jobs in the stream afterwards."""
    db = redis.Redis.from_url(server.url)
    db.zadd(keys.repeat, {"k": LONG_AGO})
    async with scheduler(server.url, keys, **config) as leader:
        await leader.turn()
    due = db.zscore(keys.repeat, "k")
    assert due is None or due > LONG_AGO
    return [id for id, _ in waiting(db, keys)]


async def fail_once(server: Server, keys: Keys) -> None:
    """Run the job in a worker, which delays it for a retry."""

    async def fail(job: Job) -> None:
        raise ValueError("not yet")

    worker = Worker(
        keys.queue, fail, redis_url=server.url, delayed_enabled=False, run_scheduler=False
    )
    async with working(worker):
        await eventually_async(lambda: worker.stats.retried == 1, within_s=60)


@on_each_server
async def test_a_fire_is_skipped_while_the_job_waits_or_runs(
    each_server: Server, keys: Keys, queue: BlockingQueue
) -> None:
    db = redis.Redis.from_url(each_server.url)
    recur(queue)
    [first] = await fire(each_server, keys)
    assert await fire(each_server, keys) == [first]
    db.xgroup_create(keys.stream, GROUP, "0")
    taken: Any = db.xreadgroup(GROUP, "tambo-1", {keys.stream: ">"})
    assert await fire(each_server, keys) == [first]
    [(entry, _)] = taken[0][1]
    db.xack(keys.stream, GROUP, entry)
    db.xdel(keys.stream, entry)
    [second] = await fire(each_server, keys)
    assert second != first
    assert (fired(db, keys), db.hlen(keys.previous)) == (2, 1)


@on_each_server
async def test_a_fire_is_skipped_while_the_job_is_retried(
    each_server: Server, keys: Keys, queue: BlockingQueue
) -> None:
    recur(queue, attempts=5, backoff=LATER)
    [first] = await fire(each_server, keys)
    await fail_once(each_server, keys)
    db = redis.Redis.from_url(each_server.url)
    assert (await fire(each_server, keys), len(members(db, keys))) == ([], 1)
    # An engine that joins needs the other dialect.
    store = Store(each_server.url)
    store.follow(convert_ops.convert(keys))
    store.close()
    assert (await fire(each_server, keys), len(members(db, keys))) == ([], 1)
    assert queue.retry_job(first)
    async with promoter(each_server.url, keys) as leader:
        await eventually_async(lambda: _promotes(leader, db, keys), within_s=60)
    assert await fire(each_server, keys) == [first]
    await fail_once(each_server, keys)
    assert await fire(each_server, keys) == []
    assert queue.cancel_job(first)
    [second] = await fire(each_server, keys)
    assert second != first


async def _promotes(leader: Any, db: redis.Redis, keys: Keys) -> bool:
    await leader.turn()
    return db.zcard(keys.delayed) == 0


@pytest.mark.parametrize("each_server", ["valkey"], indirect=True)
async def test_a_job_that_waits_for_a_slot_in_a_full_stream_counts(
    each_server: Server, keys: Keys, queue: BlockingQueue
) -> None:
    db = redis.Redis.from_url(each_server.url)
    recur(queue)
    other = queue.add("other", 1)
    for _ in range(2):
        assert await fire(each_server, keys, cap=1) == [other.id]
        assert db.zcard(keys.delayed) == 1
    queue.drain(delayed=True)
    assert len(await fire(each_server, keys, cap=1)) == 1


@pytest.mark.parametrize("each_server", ["valkey"], indirect=True)
async def test_of_many_missed_fires_one_adds_a_job_and_only_it_counts(
    each_server: Server, keys: Keys, queue: BlockingQueue
) -> None:
    db = redis.Redis.from_url(each_server.url)
    recur(queue, missed_fires=MissedFiresPolicy.fire_all(5), limit=2)
    assert len(await fire(each_server, keys)) == 1
    assert fired(db, keys) == 1
    queue.drain()
    assert len(await fire(each_server, keys)) == 1
    # It was the last one.
    assert queue.get_repeatable_jobs() == []
    assert not db.exists(keys.unless_queued, keys.previous)


@pytest.mark.parametrize("each_server", ["valkey"], indirect=True)
async def test_the_option_is_listed_replaced_and_removed_with_its_spec(
    each_server: Server, keys: Keys, queue: BlockingQueue
) -> None:
    db = redis.Redis.from_url(each_server.url)
    recur(queue)
    assert [meta.unless_queued for meta in queue.get_repeatable_jobs()] == [True]
    [first] = await fire(each_server, keys)
    recur(queue, limit=9)
    assert await fire(each_server, keys) == [first]
    recur(queue, unless_queued=False)
    assert [meta.unless_queued for meta in queue.get_repeatable_jobs()] == [False]
    assert not db.exists(keys.unless_queued, keys.previous)
    assert len(await fire(each_server, keys)) == 2
    recur(queue)
    assert len(await fire(each_server, keys)) == 3
    assert queue.remove_repeatable_by_key("k")
    assert not db.exists(keys.unless_queued, keys.previous)


@pytest.mark.parametrize("each_server", ["valkey"], indirect=True)
async def test_a_spec_that_another_client_replaced_loses_the_option(
    each_server: Server, keys: Keys, queue: BlockingQueue
) -> None:
    db = redis.Redis.from_url(each_server.url)
    recur(queue)
    await fire(each_server, keys)
    spec = msgspec.structs.replace(every(HOUR_MS + 1), missed_fires=ONCE)
    put_spec(db, keys, encode_spec(spec, "engine"), LONG_AGO, "k")
    assert [meta.unless_queued for meta in queue.get_repeatable_jobs()] == [False]
    assert len(await fire(each_server, keys)) == 2


@pytest.mark.parametrize("each_server", ["valkey"], indirect=True)
def test_the_option_is_true_or_false(queue: BlockingQueue) -> None:
    with pytest.raises(InvalidFormat, match="unless_queued"):
        recur(queue, unless_queued="yes")
