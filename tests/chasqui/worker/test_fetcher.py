"""The fetcher goes on when the group, the stream or the connection is lost."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Queue, Worker
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.worker import fetcher
from tambomq.errors import StoreError, StoreRefused
from tambomq.store.features import features
from tests.chasqui import working
from tests.chasqui.conftest import OpenQueue, Work
from tests.chasqui.working import GatedHandler, completed, pending
from tests.servers import Server, eventually_async
from tests.store.proxy import Proxy

server = working.server


async def nothing(_: Job) -> None:
    pass


async def blocked(db: redis.Redis, count: int = 1) -> None:
    """Return when so many reads wait on the server."""
    await eventually_async(lambda: db.info("clients")["blocked_clients"] == count)


DELETIONS: dict[str, Callable[[redis.Redis, Keys], Any]] = {
    "DEL": lambda db, keys: db.delete(keys.stream),
    "XGROUP DESTROY": lambda db, keys: db.xgroup_destroy(keys.stream, GROUP),
    "FLUSHALL": lambda db, keys: db.flushall(),
    "RENAME": lambda db, keys: db.rename(keys.stream, keys.stream + ":away"),
}


@pytest.mark.parametrize("how", DELETIONS)
async def test_a_deleted_group_is_created_again(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, how: str
) -> None:
    async with work(nothing) as worker:
        await queue.add("job", None)
        await completed(worker, 1)
        await blocked(db)
        DELETIONS[how](db, keys)
        await queue.add_bulk([{"name": "job", "data": None}] * 3)
        await completed(worker, 4)
    assert pending(db, keys) == {}


async def test_jobs_added_while_there_was_no_group_are_found(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async with work(nothing) as worker:
        await blocked(db)
        with db.pipeline() as pipe:
            pipe.delete(keys.stream)
            for n in range(5):
                pipe.xadd(keys.stream, {"d": b"\x94\xa1a\xc4\x01" + bytes([n]) + b"\x01\x00"})
            pipe.execute()
        await completed(worker, 5)


async def test_a_worker_survives_the_deletion_of_the_stream_and_counts_lost_jobs(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler()
    await queue.add("job", "gone")
    async with work(held) as worker:
        await held.holds(1)
        db.delete(keys.stream)
        held.go.set()
        await eventually_async(lambda: worker.stats.lost == 1)
        await queue.add("job", "new")
        await completed(worker, 1)
    assert held.ended == ["gone", "new"]


async def test_a_stream_of_another_type_is_waited_out(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.stream, "in the way")
    async with work(nothing, delayed_enabled=False, run_scheduler=False) as worker:
        await eventually_async(lambda: worker.is_running)
        db.delete(keys.stream)
        await queue.add("job", None)
        await completed(worker, 1)


async def test_a_queue_that_cannot_be_read_is_tried_ever_less_often(
    work: Work,
    db: redis.Redis,
    keys: Keys,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[float] = []

    def delays(*, longest_s: float) -> Iterator[float]:
        begun.append(longest_s)
        return itertools.repeat(0.001)

    monkeypatch.setattr(fetcher, "backoff_delays", delays)

    async def refused(times: int) -> None:
        caplog.clear()
        await eventually_async(lambda: caplog.text.count("cannot read queue") >= times)

    async with work(nothing, delayed_enabled=False, run_scheduler=False):
        await blocked(db)
        db.set(keys.stream, "in the way")
        await refused(1)
        begun.clear()
        await refused(20)
        assert begun == []


async def test_a_worker_that_may_not_claim_goes_on_reading(
    server: Server, db: redis.Redis, queue: Queue, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    ran: set[str] = set()

    async def handler(job: Job) -> None:
        ran.add(job.id)

    db.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], categories=["+@all"])
    try:
        async with work(handler, redis_url=server.url.replace("//", "//reader:any@")) as worker:
            await blocked(db)
            db.acl_setuser("reader", enabled=True, categories=["-@scripting"])
            assert worker._fetcher is not None
            claims_by_script = not worker._fetcher._context.features.claim
            await eventually_async(lambda: "cannot read" in caplog.text or not claims_by_script)
            jobs = await queue.add_bulk([{"name": "job", "data": None}] * 5)
            await eventually_async(lambda: ran == {job.id for job in jobs})
            db.acl_setuser("reader", enabled=True, categories=["+@scripting"])
            await completed(worker, 5)
    finally:
        db.acl_deluser("reader")


# ── connections ──────────────────────────────────────────────────────────────


async def test_jobs_of_a_lost_reply_run_once(
    queue: Queue, work: Work, server: Server, db: redis.Redis, keys: Keys
) -> None:
    seen: list[tuple[Any, int, int]] = []

    async def handler(job: Job) -> None:
        ((_, count),) = pending(db, keys).values()
        seen.append((len(job.data), job.attempt, count))

    with Proxy(server.port) as proxy:
        async with work(handler, redis_url=proxy.url) as worker:
            await blocked(db)
            # Only a read has so long a reply: the job is delivered, and does not arrive.
            proxy.cut("reply", 100_000)
            await queue.add("job", "x" * 300_000)
            # The lease lasts half a minute, so no other worker has claimed it.
            await completed(worker, 1)
    assert seen == [(300_000, 1, 1)]
    assert worker.stats.received == 1


async def test_a_lost_reply_is_remembered_where_the_next_call_is_refused(
    queue: Queue, work: Work, server: Server, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    def refuse_once() -> Any:
        if not refused:
            refused.append("NOPERM")
            raise StoreRefused("NOPERM")
        return features()

    with Proxy(server.port) as proxy:
        async with work(nothing, redis_url=proxy.url, claim_min_idle_ms=3_600_000) as worker:
            await blocked(db)
            # It is called after each reconnect.
            monkeypatch.setattr(fetcher, "features", refuse_once)
            proxy.cut("reply", 100_000)
            await queue.add("job", "x" * 300_000)
            await completed(worker, 1)
    assert refused == ["NOPERM"]


async def test_a_running_job_is_not_recovered_too(
    queue: Queue, work: Work, server: Server, db: redis.Redis
) -> None:
    held = GatedHandler()
    with Proxy(server.port) as proxy:
        async with work(held, redis_url=proxy.url) as worker:
            await queue.add("job", "running")
            await held.holds(1)
            proxy.cut("reply", 100_000)
            await queue.add("job", "x" * 300_000)
            await held.holds(2)
            held.go.set()
            await completed(worker, 2)
    assert worker.stats.received == 2


async def test_a_connection_that_breaks_while_nothing_comes_is_made_again(
    queue: Queue, work: Work, server: Server, db: redis.Redis
) -> None:
    with Proxy(server.port) as proxy:
        async with work(nothing, redis_url=proxy.url) as worker:
            for count in range(1, 4):
                await blocked(db)
                proxy.hang_up()
                await queue.add("job", None)
                await completed(worker, count)


async def test_a_worker_can_be_closed_after_its_connection_has_changed(
    queue: Queue, work: Work, server: Server, db: redis.Redis, keys: Keys
) -> None:
    with Proxy(server.port) as proxy:
        async with work(nothing, redis_url=proxy.url, read_block_ms=20_000) as worker:
            await blocked(db)
            before = worker._fetcher and worker._fetcher._connection
            proxy.hang_up()
            await eventually_async(
                lambda: worker._fetcher and worker._fetcher._connection not in (None, before)
            )
            await blocked(db)
    assert db.xinfo_consumers(keys.stream, GROUP) == []


async def test_a_worker_that_finds_no_server_works_when_there_is_one(
    open_queue: OpenQueue, work: Work, private_server: Server
) -> None:
    private_server.stop()
    async with work(nothing, redis_url=private_server.url) as worker:
        await eventually_async(lambda: worker.is_running)
        private_server.restart()
        await open_queue(redis_url=private_server.url).add("job", None)
        await completed(worker, 1)


# ── errors that are not the server's ─────────────────────────────────────────


async def test_a_credential_provider_that_fails_for_a_while_stops_no_worker(
    queue: Queue, work: Work, server: Server, db: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    class Tokens:
        fails = False

        def __call__(self, _: object = None) -> tuple[str, str]:
            if self.fails:
                raise RuntimeError("no token today")
            return "default", "any"

    tokens, held = Tokens(), GatedHandler()
    with Proxy(server.port) as proxy:
        options: dict[str, Any] = {"credential_provider": tokens, "patience_s": 0.1}
        async with work(held, redis_url=proxy.url, **options) as worker:
            await queue.add("job", "ends without a token")
            await held.holds(1)
            await blocked(db)
            tokens.fails = True
            proxy.hang_up()
            held.go.set()
            said = ("cannot read", "is paused", "cancelled jobs", "cannot settle")
            await eventually_async(lambda: all(each in caplog.text for each in said))
            tokens.fails = False
            await queue.add("job", "read with a new token")
            await completed(worker, 2)
    assert held.ended == ["ends without a token", "read with a new token"]
    assert worker.stats.lost == 0


@pytest.mark.parametrize("module", ["fetcher", "cancellations"])
async def test_a_worker_of_which_a_task_has_failed_ends_with_its_error(
    queue: Queue, server: Server, keys: Keys, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bool:
        raise RuntimeError("a log filter of the user")

    def refused(*_: object) -> Any:
        raise StoreError("no")

    monkeypatch.setattr("tambomq.chasqui.worker.cancellations.POLL_EVERY_S", 0.05)
    held = GatedHandler()
    await queue.add("job", "runs")
    worker = Worker(keys.queue, held, redis_url=server.url)
    running = asyncio.create_task(worker.run())
    await held.holds(1)
    log = logging.getLogger(f"tambomq.chasqui.worker.{module}")
    monkeypatch.setattr(log, "filters", [broken])
    monkeypatch.setattr("tambomq.chasqui.ops.worker.is_paused", refused)
    monkeypatch.setattr("tambomq.chasqui.ops.cancel.cancelled_since", refused)
    await eventually_async(lambda: not worker.is_consuming)
    held.go.set()
    with pytest.raises(RuntimeError, match="a log filter of the user"):
        await asyncio.wait_for(running, 60)
    assert held.ended == ["runs"]
