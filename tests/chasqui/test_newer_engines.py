"""Keys and fields of later engine releases, and how TamboMQ handles them."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job, Queue, UnrecoverableError
from tambomq.chasqui.keys import Keys
from tests.chasqui.conftest import Work
from tests.chasqui.working import completed
from tests.servers import eventually_async


async def handler(job: Job) -> Any:
    if job.data == "dead":
        raise UnrecoverableError("no")
    if job.data == "fails" and job.attempt == 1:
        raise ValueError("not yet")
    return 5 if job.data == "returns" else None


@pytest.mark.parametrize("data", ["plain", "returns"])
async def test_the_stall_count_is_deleted_when_the_job_completes(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, data: str
) -> None:
    job = await queue.add("mail", data)
    db.mset({keys.stalls(job.id): 2, keys.stalls("another"): 1})
    async with work(handler, store_results=True) as worker:
        await completed(worker, 1)
    assert db.mget(keys.stalls(job.id), keys.stalls("another")) == [None, b"1"]


async def test_the_stall_count_survives_a_retry_and_is_deleted_by_burying_and_replay(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    fails = await queue.add("mail", "fails", backoff=3_600_000)
    dead = await queue.add("mail", "dead")
    db.mset({keys.stalls(fails.id): 2, keys.stalls(dead.id): 2})
    async with work(handler) as worker:
        await eventually_async(lambda: (worker.stats.retried, worker.stats.buried) == (1, 1))
    assert db.mget(keys.stalls(fails.id), keys.stalls(dead.id)) == [b"2", None]
    # A newer engine dead-letters jobs that stalled too often; the replay deletes their count.
    db.set(keys.stalls(dead.id), 3)
    assert await queue.replay_dlq() == 1
    assert not db.exists(keys.stalls(dead.id))


async def test_the_limiter_of_newer_engines_is_not_changed(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    theirs = f"{{chasqui:{keys.queue}}}:limiter"
    db.hset(theirs, mapping={"tokens": 3, "refilled": 5})
    await queue.add("mail", "plain")
    async with work(handler, limiter=(5, 60_000)) as worker:
        await completed(worker, 1)
    assert db.hgetall(theirs) == {b"tokens": b"3", b"refilled": b"5"}
    assert db.ttl(theirs) == -1
    assert db.hget(keys.limiter, "started") == b"1"


async def test_progress_events_have_the_fields_of_newer_engines(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async def report_progress(job: Job) -> None:
        await job.update_progress(40)

    for name in ("mail", ""):
        await queue.add(name, 1)
    async with work(report_progress, store_results=True, result_ttl_ms=60_000) as worker:
        await completed(worker, 2)
    rows: Any = db.xrange(keys.events)
    progress_events = [fields for _, fields in rows if fields[b"e"] == b"progress"]
    assert [list(fields)[3:] for fields in progress_events] == [[b"n", b"progress"], [b"progress"]]
    assert {fields[b"progress"] for fields in progress_events} == {b"40"}
    assert 0 < int(str(db.ttl(keys.progress(progress_events[0][b"id"].decode())))) <= 60


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_handler_keeps_lines_of_its_own_log(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, *, in_thread: bool
) -> None:
    async def on_the_loop(job: Job) -> None:
        for line in ("begun", "é\ud800", ""):
            await job.log(line)

    def in_a_thread(job: Job) -> None:
        for line in ("begun", "é\ud800", ""):
            job.log(line)

    job = await queue.add("mail", 1)
    assert await queue.get_job_logs(job.id) == []
    async with work(in_a_thread if in_thread else on_the_loop) as worker:
        await completed(worker, 1)
    assert await queue.get_job_logs(job.id) == ["begun", "é\\ud800", ""]
    assert await queue.get_job_logs(job.id, 1) == ["begun"]
    rows: Any = db.xrange(keys.log(job.id))
    assert [list(fields) for _, fields in rows] == [[b"line"]] * 3
    assert 0 < int(str(db.ttl(keys.log(job.id)))) <= 3600


async def test_log_lines_written_by_newer_engines_are_read(
    queue: Queue, blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    db.xadd(keys.log("a"), {"line": "theirs", "level": "info"})
    db.xadd(keys.log("a"), {"other": "x"})
    assert await queue.get_job_logs("a") == blocking.get_job_logs("a") == ["theirs", ""]


async def test_a_log_line_that_is_not_text_fails_the_job(
    queue: Queue, work: Work, db: redis.Redis
) -> None:
    async def handler(job: Job) -> None:
        await job.log(job.data)

    await queue.add("mail", 5, attempts=1)
    async with work(handler) as worker:
        await eventually_async(lambda: worker.stats.buried == 1)
    with pytest.raises(RuntimeError, match="log needs a job given to a handler"):
        Job("a", "b", 1, 0, 1).log("x")
