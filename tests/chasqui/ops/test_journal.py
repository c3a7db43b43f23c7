"""Producers journal each stored job once, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.errors import JournalFull, QueueFull, StoreError, WrongType
from tambomq.ids import letters
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalBounds
from tests.chasqui.conftest import Connect, Work
from tests.journal.looking import bodies, commit_all, records, state
from tests.servers import Server, eventually_async
from tests.servers.cluster import Cluster
from tests.store.proxy import Proxy

ENTRY = 100
Payloads = list[bytes | None]
WAYS: list[dict[str, Any]] = [
    {},
    {"delay_ms": 60_000},
    {"job_id": "x"},
    {"job_id": "y", "delay_ms": 60_000},
]


@pytest.fixture
def journalled(keys: Keys, server: Server) -> Callable[[], Payloads]:
    """A function that returns the payloads in the journal."""
    return lambda: bodies(server.url, "chasqui", keys.queue)


@pytest.fixture
def on_each(each_server: Server, keys: Keys) -> Iterator[BlockingQueue]:
    """A queue with a journal, on each kind of server."""
    with BlockingQueue(keys.queue, redis_url=each_server.url, journal=True) as opened:
        yield opened


def test_each_way_to_add_is_recorded(on_each: BlockingQueue, each_server: Server) -> None:
    added = [
        on_each.add("a", {"n": 1}),
        on_each.add("b", 2, delay_ms=60_000),
        on_each.add("c", 3, job_id="mine"),
        on_each.add("d", 4, job_id="later", delay_ms=60_000),
        on_each.add("e", "x" * 300),
        on_each.add("f", "y" * 70_000),
        on_each.add("", None, attempts=3),
        *on_each.add_bulk([{"name": "g", "data": n} for n in range(300)]),
        *on_each.add_bulk([{"name": "h", "data": n, "job_id": f"h{n}"} for n in range(20)]),
        *on_each.add_bulk([{"name": f"i{n}", "data": n} for n in range(3)]),
    ]
    found = records(each_server.url, "chasqui", on_each.name)
    shown = {each.id: (each.name, each.body) for each in found}
    assert len(found) == len(shown) == len(added)
    assert shown == {job.id: (job.name, encode_payload(job.data)) for job in added}
    assert {each.event for each in found} == {"sent"}
    delayed = {each.id: each.delay_ms for each in found if each.delay_ms}
    assert set(delayed) == {added[1].id, "later"}
    assert all(59_000 < delay_ms <= 60_000 for delay_ms in delayed.values())


def test_a_strict_id_is_recorded_once(connect: Connect, journalled: Callable[[], Payloads]) -> None:
    for _ in range(2):
        queue = connect(journal=True, dedup="strict")
        queue.add("a", 1, job_id="mine")
        queue.add("a", 2, job_id="mine")
    assert journalled() == [encode_payload(1)]


def test_a_duplicate_add_is_not_recorded_again(on_each: BlockingQueue, each_server: Server) -> None:
    for _ in range(2):
        on_each.add("a", 1, job_id="one")
        on_each.add("a", 2, job_id="two", delay_ms=60_000)
        on_each.add_bulk([{"name": "a", "data": n, "job_id": f"n{n}"} for n in range(3)])
    on_each.add_bulk([{"name": "a", "data": n, "job_id": f"n{n}"} for n in range(5)])
    assert len(bodies(each_server.url, "chasqui", on_each.name)) == 2 + 5
    counts = on_each.get_job_counts()
    assert (counts.waiting, counts.delayed) == (6, 1)


def test_the_fields_are_as_they_are_described(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    job = connect(journal=True).add("mail", [1], delay_ms=5000)
    found: Any = db.xrange(JournalKeys("chasqui", keys.queue).journal)
    ((_, fields),) = found
    payload = encode_payload([1])
    assert list(fields) == [b"o", b"e", b"id", b"ts", b"n", b"d", b"delay_ms"]
    assert fields[b"id"] == job.id.encode()
    assert (fields[b"n"], fields[b"d"], fields[b"o"]) == (b"mail", payload, b"102")


async def test_workers_run_what_was_recorded(
    connect: Connect, work: Work, journalled: Callable[[], Payloads]
) -> None:
    queue = connect(journal=True)
    await asyncio.to_thread(queue.add_bulk, [{"name": "a", "data": n} for n in range(5)])
    ran: list[int] = []

    async def handle(job: Any) -> None:
        ran.append(job.data)

    async with work(handle):
        await eventually_async(lambda: len(ran) == 5)
    assert await asyncio.to_thread(journalled) == [encode_payload(n) for n in ran]


def test_without_the_option_no_journal_is_created(twin: BlockingQueue, db: redis.Redis) -> None:
    twin.add("a", 1)
    assert not list(db.scan_iter("{tambo*"))


# ── full ─────────────────────────────────────────────────────────────────────


def test_a_full_journal_refuses_and_nothing_is_stored(
    connect: Connect, keys: Keys, server: Server
) -> None:
    queue = connect(journal=JournalBounds(max_entries=3))
    queue.add("a", 1)
    with pytest.raises(JournalFull):
        queue.add_bulk([{"name": "a", "data": n} for n in range(3)])
    with pytest.raises(JournalFull):
        queue.add_bulk([{"name": "a", "data": n, "job_id": f"n{n}"} for n in range(300)])
    queue.add("a", 2)
    queue.add("a", 3, delay_ms=60_000)
    for options in WAYS:
        with pytest.raises(JournalFull, match=keys.queue):
            queue.add("a", 4, **options)
    counts = queue.get_job_counts()
    assert (counts.waiting, counts.delayed) == (2, 1)
    found = state(server.url, "chasqui", keys.queue)
    assert found is not None
    assert found.entries == 3
    assert found.refused >= 3 + 250 + 4
    commit_all(server.url, "chasqui", keys.queue)
    queue.add("a", 4, job_id="x")
    assert queue.get_job_counts().waiting == 3


def test_a_duplicate_add_succeeds_although_the_journal_is_full(connect: Connect) -> None:
    queue = connect(journal=JournalBounds(max_entries=2))
    queue.add("a", 1, job_id="one")
    queue.add("a", 2, job_id="two", delay_ms=60_000)
    queue.add("a", 1, job_id="one")
    queue.add("a", 2, job_id="two", delay_ms=60_000)
    with pytest.raises(JournalFull):
        queue.add("a", 3)


def test_a_full_queue_records_nothing(connect: Connect, journalled: Callable[[], Payloads]) -> None:
    queue = connect(journal=True, max_stream_len=2)
    queue.add_bulk([{"name": "a", "data": n} for n in range(2)])
    with pytest.raises(QueueFull):
        queue.add("a", 3)
    assert len(journalled()) == 2


# ── neither or both ──────────────────────────────────────────────────────────


def test_a_journal_key_of_another_type_stops_an_add(
    connect: Connect, keys: Keys, db: redis.Redis
) -> None:
    queue = connect(journal=True)
    db.set(JournalKeys("chasqui", keys.queue).journal, "x")
    for options in WAYS:
        with pytest.raises(WrongType, match="journal"):
            queue.add("a", 1, **options)
    counts = queue.get_job_counts()
    assert (counts.waiting, counts.delayed) == (0, 0)


def test_an_add_to_a_key_of_another_type_records_nothing(
    connect: Connect, keys: Keys, db: redis.Redis
) -> None:
    queue = connect(journal=True)
    db.set(keys.stream, "x")
    db.set(keys.delayed, "x")
    for options in WAYS:
        with pytest.raises(WrongType):
            queue.add("a", 1, **options)
    assert not list(db.scan_iter("{tambo*"))


def test_a_repeat_after_a_lost_reply_records_nothing_twice(
    connect_to: Connect, server: Server, journalled: Callable[[], Payloads]
) -> None:
    with Proxy(server.port) as proxy:
        queue = connect_to(proxy.url, journal=True)
        queue.add("a", 0)
        for n, options in enumerate(WAYS, 1):
            proxy.cut("reply", 1)
            queue.add("a", n, **options)
        proxy.cut("reply", 1)
        queue.add_bulk([{"name": "a", "data": n} for n in (5, 6)])
        assert journalled() == [encode_payload(n) for n in range(7)]
        counts = queue.get_job_counts()
        assert (counts.waiting, counts.delayed) == (5, 2)


def test_a_cluster_is_refused_in_one_line(cluster: Cluster) -> None:
    url = cluster.nodes[0].url
    with BlockingQueue(f"q-{letters(8)}", redis_url=url, journal=True) as queue:
        with pytest.raises(StoreError, match="a journal cannot be kept on a cluster"):
            queue.add("a", 1)
        assert queue.get_job_counts().waiting == 0


adds = st.lists(
    st.tuples(
        st.sampled_from(["", "mail", "é" * 20]),
        st.none() | st.binary(max_size=300) | st.text(max_size=40) | st.integers(0, 9),
        st.none() | st.sampled_from(["x", "y", "z"]),
        st.booleans(),
    ),
    max_size=10,
)


@given(adds)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_journal_holds_each_job_that_is_stored(
    server: Server, db: redis.Redis, jobs: list[tuple[str, Any, str | None, bool]]
) -> None:
    db.flushall()
    with BlockingQueue("q", redis_url=server.url, journal=True) as queue:
        for name, data, id, later in jobs:
            queue.add(name, data, job_id=id, delay_ms=60_000 if later else None)
        found = records(server.url, "chasqui", "q")
        counts = queue.get_job_counts()
    assert len(found) == counts.waiting + counts.delayed
    assert sum(each.delay_ms is not None for each in found) == counts.delayed
    sent = {(name, encode_payload(data)) for name, data, _, _ in jobs}
    assert {(each.name, each.body) for each in found} <= sent
