"""Ids of workers and producers are drawn in each process, also after fork and pickle."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import redis

from tambomq.chasqui import BlockingQueue, Job, Worker
from tambomq.chasqui.keys import Keys
from tests.chasqui.conftest import working
from tests.chasqui.forked_workers import forked_workers
from tests.chasqui.stored import ids
from tests.chasqui.working import consumers, pending
from tests.servers import Server, eventually, eventually_async

T = TypeVar("T")


def in_a_fork(work: Callable[[], Any]) -> None:
    """Do *work* in a child of this process."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def copied(thing: T) -> T:
    """Return *thing* as another process receives it."""
    copy: T = pickle.loads(pickle.dumps(thing))  # noqa: S301  (it is our own)
    return copy


async def nothing(job: Job) -> None:
    pass


def reading(db: redis.Redis) -> int:
    """How many wait for a job."""
    clients: Any = db.client_list()
    return sum(client["cmd"] == "xreadgroup" for client in clients)


def group_of(db: redis.Redis, keys: Keys) -> set[str]:
    found: Any = db.xinfo_groups(keys.stream) if db.exists(keys.stream) else []
    return set(consumers(db, keys)) if found else set()


def test_processes_forked_from_one_worker_run_each_job_once_also_after_a_cut(
    server: Server, db: redis.Redis, keys: Keys, blocking: BlockingQueue
) -> None:
    def has_begun(count: int) -> bool:
        return db.llen("begun") >= count

    with forked_workers(server.url, keys.queue, 2):
        eventually(lambda: reading(db) == 2, within_s=30)
        jobs = blocking.add_bulk([{"name": "n", "data": place} for place in range(4)])
        eventually(lambda: has_begun(4), within_s=30)
        before = {entry: consumer for entry, (consumer, _) in pending(db, keys).items()}
        clients: Any = db.client_list()
        for client in clients:
            if client["name"] == "tambomq":
                db.client_kill_filter(_id=client["id"])
        # A worker that lost its connection looks for what it was given in a reply that was lost,
        # before it reads on. So once these have begun it has looked.
        blocking.add_bulk([{"name": "n", "data": place} for place in range(4, 24)])
        eventually(lambda: has_begun(20), within_s=30)
        after = {entry: consumer for entry, (consumer, _) in pending(db, keys).items()}
        assert len(jobs) == len(before) == 4
        assert before.items() <= after.items(), "nobody took over what another runs"
        assert len(group_of(db, keys)) == 2
        db.set("go", 1)
        eventually(lambda: db.xlen(keys.stream) == 0, within_s=30)
        begun: Any = db.lrange("begun", 0, -1)
        assert sorted(map(int, begun)) == list(range(24))


def has_run_in_both(db: redis.Redis, keys: Keys, queue: BlockingQueue) -> bool:
    # Before Redis 7.2 a consumer is known when it was given its first job.
    queue.add("n", 1)
    return len(group_of(db, keys)) == 2


async def test_copies_of_a_worker_are_consumers_of_their_own(
    server: Server, db: redis.Redis, keys: Keys, blocking: BlockingQueue
) -> None:
    worker = Worker(keys.queue, nothing, redis_url=server.url)
    first, second = (copied(worker) for _ in range(2))
    async with working(first), working(second):
        await eventually_async(lambda: reading(db) == 2)
        await eventually_async(lambda: has_run_in_both(db, keys, blocking), within_s=20)


async def test_a_worker_has_the_consumer_id_it_was_given(
    server: Server, db: redis.Redis, keys: Keys, blocking: BlockingQueue
) -> None:
    blocking.add("n", 1)
    async with working(Worker(keys.queue, nothing, redis_url=server.url, consumer_id="mine")):
        await eventually_async(lambda: group_of(db, keys) == {"mine"})


# ── producers ────────────────────────────────────────────────────────────────


def test_a_forked_child_is_a_producer_of_its_own(
    blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    blocking.add("n", 1, job_id="a")
    blocking.add("n", 1, job_id="a")
    assert ids(db, keys) == ["a"], "an id counts once for its producer"
    in_a_fork(lambda: blocking.add("n", 1, job_id="a"))
    assert ids(db, keys) == ["a", "a"]


def test_a_copy_of_a_queue_is_a_producer_of_its_own(
    blocking: BlockingQueue, db: redis.Redis, keys: Keys, server: Server
) -> None:
    original = BlockingQueue(keys.queue, redis_url=server.url)
    copy = copied(original)
    for queue in (original, copy, original):
        queue.add("n", 1, job_id="a")
        queue.close()
    assert ids(db, keys) == ["a", "a"]


def test_forked_children_add_all_their_jobs(
    blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    blocking.add("n", 0)
    for _ in range(3):
        in_a_fork(lambda: [blocking.add("n", place) for place in range(20)])
    assert len(set(ids(db, keys))) == 61
