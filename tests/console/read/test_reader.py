"""Real traffic of all protocols, as the console sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import redis

from tambomq.bulk.lease_model import LeaseRequest
from tambomq.chasqui import Job, Queue, RepeatPattern, Worker
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.console.model import QueueRef
from tambomq.console.read import reader as reader_module
from tambomq.console.read.rates import Rates
from tambomq.console.read.reader import Reader
from tambomq.errors import InvalidFormat, QueueNotFound
from tambomq.gomq.model import Options
from tambomq.gomq.server.service import Service
from tambomq.kqueue import KqueueServer
from tambomq.kqueue.async_client import AsyncConsumer, AsyncProducer
from tambomq.rsmq import AsyncRsmq
from tambomq.rsmq.bulk.lease import RsmqLeaseOps
from tambomq.rsmq.model import sent_ms
from tambomq.store.aio import AsyncStore
from tests.console.read.conftest import CountingStore, rows
from tests.gomq.conftest import Peer, publish
from tests.servers import Server, eventually_async


@contextlib.asynccontextmanager
async def working(queue: str, url: str, handler: Any) -> AsyncIterator[Worker]:
    worker = Worker(queue, handler, redis_url=url)
    task = asyncio.create_task(worker.run())
    yield worker
    await worker.close()
    await task


async def fail_if_odd(job: Job) -> None:
    if job.data % 2:
        raise ValueError("odd")


async def test_an_rsmq_queue_shows_what_is_visible_hidden_delayed_and_dead(
    async_rsmq: AsyncRsmq, reader: Reader
) -> None:
    for name in ("orders", "orders-dead"):
        await async_rsmq.create_queue(name)
    await async_rsmq.send_message("orders-dead", "it failed")
    for _ in range(4):
        await async_rsmq.send_message("orders", "x")
    await async_rsmq.send_message("orders", "later", delay=1000)
    await async_rsmq.receive_message("orders", vt=1000)
    row = rows(await reader.overview())["rsmq:orders"]
    assert (row.depth, row.visible, row.in_flight, row.delayed, row.dead) == (5, 3, 1, 1, 1)
    assert row.oldest_s is not None
    assert row.size_bytes
    assert row.trouble is None


async def test_a_dead_letter_queue_is_counted_with_its_queue_and_can_still_be_opened(
    async_rsmq: AsyncRsmq, reader: Reader
) -> None:
    for name in ("orders", "orders-dead", "alone-dead"):
        await async_rsmq.create_queue(name)
    assert set(rows(await reader.overview())) == {"rsmq:orders", "rsmq:alone-dead"}
    assert QueueRef("rsmq", "orders-dead") in await reader.refs()
    assert (await reader.queue(QueueRef("rsmq", "orders-dead"))).row.depth == 0


async def test_what_was_sent_after_the_last_refresh_is_not_delayed(
    async_rsmq: AsyncRsmq, reader: Reader
) -> None:
    begun_ms = (await reader.overview()).at_ms
    await async_rsmq.create_queue("orders")

    async def sent_later() -> bool:
        return (sent_ms(await async_rsmq.send_message("orders", "x")) or 0) > begun_ms

    await eventually_async(sent_later)
    row = (await reader.queue(QueueRef("rsmq", "orders"))).row
    assert row.delayed == row.in_flight == 0
    assert row.visible == row.depth > 0


async def test_a_chasqui_queue_shows_its_rates_and_that_runs_fail(
    server: Server, reader: Reader
) -> None:
    async with Queue("payments", redis_url=server.url) as queue:
        await queue.add_bulk([{"name": "pay", "data": n, "attempts": 1} for n in range(40)])
        first = rows(await reader.overview())["chasqui:payments"]
        assert (first.visible, first.in_flight, first.dead) == (40, 0, 0)
        async with working("payments", server.url, fail_if_odd) as worker:
            await eventually_async(lambda: worker.stats.completed + worker.stats.buried == 40)
            row = rows(await reader.overview())["chasqui:payments"]
    assert (row.depth, row.dead) == (0, 20)
    assert row.out_per_s > 0
    assert row.failed_per_s == 2.0
    assert row.trouble is not None
    assert (row.trouble.kind, row.trouble.severity) == ("failing", "red")
    totals = (await reader.overview()).totals
    assert (totals.dead, totals.dead_last_hour) == (20, 20)
    assert row.backlog_fine[-1] == row.backlog[-1] == 0


async def test_running_and_delayed_jobs_of_a_paused_queue_are_counted(
    server: Server, reader: Reader
) -> None:
    release = asyncio.Event()

    async def wait(job: Job) -> None:
        await release.wait()

    async with Queue("slow", redis_url=server.url) as queue:
        await queue.add("later", None, delay_ms=1_000_000)
        await queue.add_bulk([{"name": "a", "data": n} for n in range(3)])
        async with working("slow", server.url, wait) as worker:
            await eventually_async(lambda: worker.stats.received == 3)
            await queue.pause()
            overview = await reader.overview()
            release.set()
    row = rows(overview)["chasqui:slow"]
    assert (row.visible, row.in_flight, row.delayed, row.paused) == (0, 3, 1, True)
    assert overview.totals.workers == 1


async def test_a_gomq_key_shows_its_peers_and_what_waits_for_them(
    server: Server, reader: Reader
) -> None:
    store = AsyncStore(server.url)
    service = Service(store, Options())
    await service.start()
    try:
        peer = Peer(service, "10.0.0.1:1", "alice")
        await peer.subscribe("news")
        await reader.overview()
        await publish(service, "news", b"a", b"b", b"c")

        async def dispatched() -> bool:
            row = rows(await reader.overview())["gomq:news"]
            waits = (row.depth, row.visible) == (3, 3) and row.in_per_s > 0
            # What waits for a peer has a size too.
            return waits and (row.size_bytes or 0) > 0

        await eventually_async(dispatched)
        assert len(await peer.observe()) == 3
        row = rows(await reader.overview())["gomq:news"]
        assert row.depth == 0
        assert row.out_per_s > 0
        (worker,) = await reader.workers("gomq:news")
        assert (worker.kind, worker.alive, worker.id) == ("peer", True, "10.0.0.1:1")
        assert worker.note == "Receives for the consumer alice; 0 messages wait for it."
        assert (await reader.queue(QueueRef("gomq", "news"))).actions == ["purge", "send"]
    finally:
        await service.stop()
        await store.close()


async def test_a_message_for_two_peers_is_done_once_in_the_totals(
    server: Server, reader: Reader
) -> None:
    store = AsyncStore(server.url)
    service = Service(store, Options())
    await service.start()
    try:
        peers = [Peer(service, f"10.0.0.{n}:1", "alice") for n in (1, 2)]
        for peer in peers:
            await peer.subscribe("news")
        await reader.overview()
        await publish(service, "news", b"a", b"b", b"c")
        for peer in peers:
            await eventually_async(peer.observe)

        async def are_done() -> bool:
            overview = await reader.overview()
            row = rows(overview)["gomq:news"]
            done = overview.totals.out_per_s
            return row.out_per_s > 0 and done == row.done_per_s == row.out_per_s / 2

        await eventually_async(are_done)
        assert (await reader.overview()).throughput.values["out"][-1] is not None
    finally:
        await service.stop()
        await store.close()


async def test_kqueue_queues_are_those_of_the_server_in_this_process(
    counting_store: CountingStore,
) -> None:
    async with KqueueServer(port=0) as broker:
        reader = Reader(counting_store, brokers=broker, max_age_s=0)
        async with (
            AsyncConsumer(*broker.address) as one,
            AsyncProducer(*broker.address) as producer,
        ):
            await one.subscribe("ticks")
            await eventually_async(lambda: broker.stats.subscriptions == 1)
            await reader.overview()
            await producer.send("ticks", b"1")
            await one.receive()
            row = rows(await reader.overview())["kqueue:ticks"]
            assert row.in_per_s > 0
            assert row.out_per_s > 0
            detail = await reader.queue(QueueRef("kqueue", "ticks"))
            assert dict(detail.settings)["Subscribers"] == "1"
            workers = await reader.workers()
    assert sorted((row.kind, *row.subscriptions) for row in workers) == [
        ("consumer", "ticks"),
        ("producer",),
    ]


async def test_a_lease_is_a_worker_with_its_holder_and_its_rest(
    async_rsmq: AsyncRsmq, reader: Reader, counting_store: CountingStore
) -> None:
    await async_rsmq.create_queue("orders")
    request = LeaseRequest("orders", "nightly", "token", "spark on host-1", lease_ms=60_000)
    await counting_store.run(RsmqLeaseOps(reader.rsmq_keys).attach(request))
    (row,) = await reader.workers()
    assert (row.queue, row.kind, row.id) == ("rsmq:orders", "lease", "nightly")
    assert (row.alive, row.holds, row.address) == (True, 0, "spark on host-1")
    assert row.lease_s is not None
    assert 0 < row.lease_s <= 60


async def test_damaged_keys_and_foreign_names_do_not_hide_other_queues(
    db: redis.Redis, reader: Reader, async_rsmq: AsyncRsmq
) -> None:
    await async_rsmq.create_queue("sound")
    db.sadd("rsmq:QUEUES", "broken", b"\xff\xfe", "no queue has this name!")
    db.set("rsmq:broken:Q", "a string")
    db.set("rsmq:broken", "a string")
    for key in ("stream", "delayed", "dlq", "events"):
        db.set(f"{{chasqui:damaged}}:{key}", "a string")
    db.set(b"{chasqui:\xff}:stream", "a string")
    db.xadd("{chasqui:half}:stream", {"d": b"\xc1"})
    db.set("{chasqui:half}:delayed", "a string")
    db.set("QUEUE_strange", "a string")
    db.sadd("SUBSCRIBED_KEYS", "QUEUE_odd")
    db.rpush("QUEUE_odd", b"\xff")
    for key in ("CONSUMERS_odd", "TALLY_odd"):
        db.set(key, "a string")
    await reader.overview()
    found = rows(await reader.overview())
    assert found["rsmq:sound"].trouble is None
    assert found["chasqui:half"].visible == 1
    kinds = {queue: row.trouble.kind for queue, row in found.items() if row.trouble}
    assert kinds == {
        "rsmq:broken": "damaged",
        "chasqui:damaged": "damaged",
        "chasqui:half": "damaged",
        "gomq:odd": "damaged",
    }
    for queue in found:
        assert (await reader.queue(QueueRef.parse(queue))).row.queue == queue
    assert await reader.workers() == []
    assert await reader.schedules() == []
    assert {row.queue for row in await reader.leaders()} == {"chasqui:damaged", "chasqui:half"}


async def test_a_damaged_set_of_names_hides_its_own_protocol_only(
    db: redis.Redis, reader: Reader
) -> None:
    db.set("rsmq:QUEUES", "a string")
    db.set("SUBSCRIBED_KEYS", "a string")
    db.rpush("QUEUE_news", b"a")
    db.xadd("{chasqui:mails}:stream", {"d": b"x"})
    assert set(rows(await reader.overview())) == {"gomq:news", "chasqui:mails"}


async def test_the_page_of_a_queue_has_charts_workers_leaders_and_schedules(
    server: Server, reader: Reader
) -> None:
    async with Queue("mails", redis_url=server.url) as queue:
        berlin = RepeatPattern.cron("0 9 * * *", tz="Europe/Berlin")
        await queue.upsert_repeatable_job("send", None, repeat=berlin, job_id="digest")
        every = RepeatPattern.every(900_000)
        await queue.upsert_repeatable_job("t", None, repeat=every, job_id="tick")
        await queue.add_bulk([{"name": "send", "data": n} for n in range(0, 20, 2)])
        async with working("mails", server.url, fail_if_odd) as worker:
            await eventually_async(lambda: worker.stats.completed == 10)

            async def led() -> bool:
                return (await reader.leaders())[0].scheduler is not None

            await eventually_async(led)
            detail = await reader.queue(QueueRef("chasqui", "mails"))
            schedules = await reader.schedules()
    assert [row.kind for row in detail.workers] == ["worker"]
    assert detail.leaders is not None
    assert detail.leaders.promoter is not None
    assert {row.key: row.pattern for row in schedules} == {
        "tick": "every 15 m 00 s",
        "digest": "0 9 * * * (Europe/Berlin)",
    }
    assert sorted(row.key for row in detail.schedules) == ["digest", "tick"]
    assert detail.run_times is not None
    assert detail.wait_times is not None
    for series in (detail.run_times, detail.wait_times):
        assert any(value is not None for value in series.values["p99"])
    assert list(detail.states) == ["visible", "in_flight", "delayed", "dead", "done"]
    assert detail.actions == ["pause", "drain", "purge", "send"]
    assert ("Recurring jobs", "2") in detail.settings


async def test_the_settings_of_an_rsmq_queue_are_shown(
    async_rsmq: AsyncRsmq, reader: Reader
) -> None:
    await async_rsmq.create_queue("orders", vt=90, maxsize=2048)
    detail = await reader.queue(QueueRef("rsmq", "orders"))
    settings = dict(detail.settings)
    assert settings["Visibility timeout"] == "1 m 30 s"
    assert settings["Largest message"] == "2.0 KiB"
    assert settings["Dead-letter queue"] == "orders-dead"


@pytest.mark.parametrize(
    "queue", ["rsmq:none", "chasqui:none", "gomq:none", "kqueue:none", "rsmq:no name!"]
)
async def test_a_queue_that_is_not_there_is_not_found(queue: str, reader: Reader) -> None:
    with pytest.raises(QueueNotFound):
        await reader.queue(QueueRef.parse(queue))


async def test_workers_of_what_is_no_queue_are_refused(reader: Reader) -> None:
    with pytest.raises(InvalidFormat):
        await reader.workers("payments")


async def test_a_queue_beyond_the_limit_is_counted_and_can_be_opened(
    monkeypatch: pytest.MonkeyPatch, db: redis.Redis, reader: Reader
) -> None:
    monkeypatch.setattr(reader_module, "MAX_QUEUES", 2)
    for name in ("a", "b", "c"):
        db.xadd(f"{{chasqui:{name}}}:stream", {"d": b"x"})
    overview = await reader.overview()
    assert (len(overview.queues), overview.cut_off) == (2, 1)
    assert (await reader.queue(QueueRef("chasqui", "c"))).row.depth == 1


async def test_a_refresh_reads_a_bounded_number_of_times(
    db: redis.Redis, reader: Reader, counting_store: CountingStore
) -> None:
    pipe = db.pipeline()
    for number in range(100):
        pipe.sadd("rsmq:QUEUES", f"q{number}")
        pipe.hset(f"rsmq:q{number}:Q", mapping={"vt": 30, "delay": 0, "maxsize": 65536})
        pipe.zadd(f"rsmq:q{number}", {"x" * 32: 2**50})
        pipe.xadd(ChasquiKeys(f"q{number}").stream, {"d": b"x"})
        pipe.xadd(ChasquiKeys(f"q{number}").events, {"e": "failed"})
        pipe.rpush(f"QUEUE_q{number}", b"x")
    pipe.execute()
    await reader.overview()
    counting_store.calls.clear()
    assert len((await reader.overview()).queues) == 300
    sizes = counting_store.calls.pop("MEMORY")
    assert sizes <= 20 * 5
    assert counting_store.calls == {
        "TIME": 1,
        "INFO": 2,
        "read_alarms": 1,
        "sample": 100,
        "receivers": 50,
        "hidden_sample": 20,
        "XREVRANGE": 10,
        "LLEN": 100,
        "HGET": 100,
        "HMGET": 100,
        "ZCARD": 200,
        "ZCOUNT": 100,
        "ZRANGE": 100,
    }


async def test_refreshes_are_shared(server: Server, counting_store: CountingStore) -> None:
    reader = Reader(counting_store)
    await asyncio.gather(*(reader.overview() for _ in range(20)))
    assert counting_store.calls["TIME"] == 1


async def test_a_queue_that_is_empty_at_each_look_does_not_grow(
    reader: Reader, async_rsmq: AsyncRsmq
) -> None:
    await async_rsmq.create_queue("orders")
    refresh = await reader.recent()
    ref = QueueRef("rsmq", "orders")
    faster_in = msgspec.structs.replace(refresh, rates={ref: Rates(entered=5.0, left=4.6)})
    assert reader.row(ref, faster_in).grows_per_s is None
    await async_rsmq.send_message("orders", "x")
    filled = (await reader.overview(), await reader.recent())[1]
    assert reader.row(
        ref, msgspec.structs.replace(filled, rates=faster_in.rates)
    ).grows_per_s == pytest.approx(0.4)
