"""The queue's producer methods: first those of both twins, then those of asyncio alone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from tambomq.chasqui import BackoffSpec, BlockingQueue, Queue
from tambomq.chasqui.job import RetryOverride
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.clock import now_ms
from tambomq.errors import ForeignLeader, InvalidFormat, InvalidValue, StoreUnavailable
from tests.chasqui.conftest import Connect, OpenQueue
from tests.chasqui.stored import delayed, events, ids, jobs, rows

HOUR = 3_600_000


# ── adding ───────────────────────────────────────────────────────────────────


def test_an_added_job_waits_in_the_stream(twin: BlockingQueue, db: redis.Redis, keys: Keys) -> None:
    before = now_ms()
    job = twin.add("send", {"to": "ana"})
    assert (job.name, job.data, job.attempts_made, job.attempt) == ("send", {"to": "ana"}, 0, 1)
    assert before <= job.created_at_ms <= now_ms()
    [(name, stored)] = jobs(db, keys)
    assert (name, stored.id, stored.created_at_ms) == ("send", job.id, job.created_at_ms)
    assert (stored.attempt, stored.retry) == (0, None)
    assert decode_payload(stored.payload) == {"to": "ana"}


def test_jobs_keep_the_order_in_which_they_were_added(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    added = [twin.add("n", place).id for place in range(20)]
    assert len(set(added)) == 20
    assert ids(db, keys) == added


@pytest.mark.parametrize(
    "data",
    [None, True, 0, -(2**63), 2**64 - 1, 1.5, "", "ñ✓", b"\0\xff", [], [None, [1]], {}, {"a": {}}],
)
def test_any_value_of_messagepack_comes_through(
    blocking: BlockingQueue, db: redis.Redis, keys: Keys, data: Any
) -> None:
    blocking.add("n", data)
    [(_, stored)] = jobs(db, keys)
    assert decode_payload(stored.payload) == data


def test_a_job_needs_no_name(twin: BlockingQueue, db: redis.Redis, keys: Keys) -> None:
    twin.add("", 1)
    assert [name for name, _ in jobs(db, keys)] == [""]
    assert [fields[::2] for _, fields in rows(db, keys.stream)] == [[b"d"]]


def test_an_add_emits_an_event_if_the_queue_announces(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    connect().add("quiet", 1)
    job = connect(announce=True).add("send", 1)
    [event] = events(db, keys)
    assert (event.name, event.job_id, event.job_name) == ("waiting", job.id, "send")
    assert event.fields == {"ts": job.created_at_ms}


def test_a_queue_without_events_emits_nothing(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    silent = connect(events_enabled=False, announce=True)
    silent.add("n", 1)
    silent.add("n", 1, delay_ms=HOUR)
    silent.add_bulk([{"name": "n", "data": 1}])
    assert not db.exists(keys.events)


def test_a_job_says_how_it_is_retried(twin: BlockingQueue, db: redis.Redis, keys: Keys) -> None:
    twin.add("a", 1, attempts=5)
    twin.add("b", 1, backoff=500)
    twin.add("c", 1, attempts=0, backoff=BackoffSpec.exponential(100, max_ms=9000))
    assert [envelope.retry for _, envelope in jobs(db, keys)] == [
        RetryOverride(5),
        RetryOverride(None, BackoffSpec("fixed", 500)),
        RetryOverride(0, BackoffSpec("exponential", 100, 9000, 2.0)),
    ]


def test_queues_do_not_see_each_other(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    connect().add("n", 1)
    connect("other").add("n", 2)
    assert len(ids(db, keys)) == len(ids(db, Keys("other"))) == 1


@pytest.mark.parametrize("name", ["{x}", "}{", "a:b", "two\nlines", "ñ✓", " ", "*"])
def test_a_queue_may_have_an_odd_name(connect: Connect, db: redis.Redis, name: str) -> None:
    odd = connect(name)
    job = odd.add("n", 1, job_id=f"id {name}x")
    assert odd.name == name
    assert ids(db, Keys(name)) == [job.id]
    assert odd.get_job_counts().waiting == 1


# ── delayed jobs ─────────────────────────────────────────────────────────────


def test_a_delayed_job_waits_until_it_is_due(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    job = twin.add("later", {"a": 1}, delay_ms=HOUR, attempts=2)
    [(name, stored, due)] = delayed(db, keys)
    assert (name, stored.id, due) == ("later", job.id, job.created_at_ms + HOUR)
    assert stored.retry == RetryOverride(2)
    assert not db.exists(keys.stream)
    [event] = events(db, keys)
    assert (event.name, event.job_id, event.job_name) == ("delayed", job.id, "later")
    assert event.fields == {"ts": job.created_at_ms, "delay_ms": HOUR}


def test_a_delay_is_given_in_several_ways(twin: BlockingQueue, db: redis.Redis, keys: Keys) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    soon = twin.add("n", 1, delay_ms=5000.9)
    later = twin.add("n", 1, delay=timedelta(hours=1))
    last = twin.add("n", 1, delay_ms=moment)
    assert [(stored.id, due) for _, stored, due in delayed(db, keys)] == [
        (soon.id, soon.created_at_ms + 5000),
        (later.id, later.created_at_ms + HOUR),
        (last.id, int(moment.timestamp()) * 1000),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"delay_ms": 0},
        {"delay": timedelta(0)},
        {"delay": timedelta(microseconds=1)},
        {"delay_ms": datetime(2020, 1, 1, tzinfo=UTC)},
    ],
)
def test_a_job_that_is_already_due_goes_to_the_stream_at_once(
    twin: BlockingQueue, db: redis.Redis, keys: Keys, options: dict[str, Any]
) -> None:
    job = twin.add("n", 1, **options)
    assert ids(db, keys) == [job.id]
    assert not db.exists(keys.delayed)


def test_the_longest_delay_is_the_queues_own(connect: Connect, db: redis.Redis) -> None:
    short, endless = connect(max_delay_secs=60), connect(max_delay_secs=0)
    with pytest.raises(InvalidValue, match="max_delay_secs 60s"):
        short.add("n", 1, delay_ms=61_000)
    assert db.dbsize() == 0
    short.add("n", 1, delay_ms=60_999)
    endless.add("n", 1, delay=timedelta(days=3650))
    with pytest.raises(InvalidValue, match="max_delay_secs 2592000s"):
        connect().add("n", 1, delay=timedelta(days=31))


# ── cancelling ───────────────────────────────────────────────────────────────


def test_a_delayed_job_is_cancelled_by_its_id_once(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    twin.add("n", 1, job_id="a", delay_ms=HOUR)
    assert twin.cancel_delayed("a") is True
    assert twin.cancel_delayed("a") is False
    windows = keys.window("").encode()
    left = {key for key in db.scan_iter() if not key.startswith(windows)}
    assert left == {keys.events.encode()}


def test_a_cancelled_id_may_be_scheduled_again(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    twin.add("n", 1, job_id="a", delay_ms=HOUR)
    twin.cancel_delayed("a")
    twin.add("n", 2, job_id="a", delay_ms=HOUR)
    assert [decode_payload(stored.payload) for _, stored, _ in delayed(db, keys)] == [2]


def test_only_jobs_delayed_under_a_caller_s_id_can_be_cancelled_by_id(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    plain = twin.add("n", 1, delay_ms=HOUR)
    twin.add("n", 1, job_id="now")
    assert [twin.cancel_delayed(id) for id in (plain.id, "now", "none")] == [False, False, False]
    assert len(delayed(db, keys)) == len(ids(db, keys)) == 1


def test_a_job_that_left_in_between_is_not_cancelled(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    twin.add("n", 1, job_id="a", delay_ms=HOUR)
    db.delete(keys.delayed)
    assert twin.cancel_delayed("a") is False
    assert db.exists(keys.marker("a"), keys.index("a")) == 2


def test_many_are_cancelled_in_one_round_trip(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    for id in "abc":
        twin.add("n", 1, job_id=id, delay_ms=HOUR)
    assert twin.cancel_delayed_bulk(["c", "none", "a", "a"]) == [True, False, True, False]
    assert [stored.id for _, stored, _ in delayed(db, keys)] == ["b"]
    assert twin.cancel_delayed_bulk([]) == []


# ── other engines ────────────────────────────────────────────────────────────


def test_a_leader_that_could_not_read_the_page_dialect_is_not_given_it(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.promoter_lock, "c-another")
    page, engine = connect(dialect="page"), connect(dialect="engine")
    for id in (None, "a"):
        with pytest.raises(ForeignLeader, match="c-another"):
            page.add("n", 1, delay_ms=HOUR, job_id=id)
    assert set(db.keys()) == {keys.promoter_lock.encode()}
    page.add("n", 1)
    engine.add("n", 1, delay_ms=HOUR, job_id="a")
    assert len(delayed(db, keys)) == 1


def test_a_leader_of_ours_reads_both_dialects(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.promoter_lock, "tambo-c-1")
    connect(dialect="page").add("n", 1, delay_ms=HOUR)
    connect(dialect="engine").add("n", 1, delay_ms=HOUR)
    assert len(delayed(db, keys)) == 2


# ── life ─────────────────────────────────────────────────────────────────────


def test_a_closed_queue_opens_again_with_the_next_call(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    twin.add("n", 1)
    assert not twin.is_closed
    twin.close()
    twin.close()
    assert twin.is_closed
    assert twin.get_job_counts().waiting == 1
    twin.add("n", 2)
    assert not twin.is_closed
    assert len(ids(db, keys)) == 2


def test_any_call_opens_a_closed_queue(twin: BlockingQueue) -> None:
    twin.close()
    twin.add_bulk([{"name": "n", "data": 1}])
    assert not twin.is_closed


def test_a_queue_connects_with_its_first_call() -> None:
    unconnected = BlockingQueue("q", redis_url="redis://127.0.0.1:1")
    assert unconnected.name == Queue("q", redis_url="redis://127.0.0.1:1").name == "q"
    with pytest.raises(InvalidFormat, match="job name"):
        unconnected.add(None, 1)  # type: ignore[arg-type]


# ── asyncio ──────────────────────────────────────────────────────────────────


async def test_jobs_added_at_the_same_time_are_all_there(
    queue: Queue, db: redis.Redis, keys: Keys
) -> None:
    added = await asyncio.gather(*(queue.add("n", place) for place in range(200)))
    assert sorted(ids(db, keys)) == sorted(job.id for job in added)


async def test_leaving_the_block_closes_the_queue(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        await queue.add("n", 1)
        assert not queue.is_closed
    assert queue.is_closed


async def test_a_queue_that_cannot_be_reached_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Queue("q", redis_url="redis://127.0.0.1:1") as queue:
        monkeypatch.setattr(queue._store, "_patience_s", 0.05)
        with pytest.raises(StoreUnavailable):
            await queue.add("n", 1)
