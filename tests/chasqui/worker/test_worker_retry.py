"""Failed jobs are retried after a backoff, up to their attempts; then they are dead letters."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest
import redis

from tambomq.chasqui import BackoffSpec, Job, Queue, UnrecoverableError, Worker
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member, encode_envelope
from tambomq.clock import now_ms
from tambomq.errors import Reject
from tambomq.failures import type_of
from tests.chasqui import working
from tests.chasqui.conftest import Work
from tests.chasqui.working import buried, completed, die_with, emitted_events, pending
from tests.servers import eventually_async

server = working.server


async def fail(_: Job) -> None:
    raise ValueError("boom")


def letters(db: redis.Redis, keys: Keys) -> list[list[tuple[bytes, bytes]]]:
    """The fields of each dead letter, in their order."""
    rows: Any = db.xrange(keys.dlq)
    return [list(fields.items()) for _, fields in rows]


def only_entry(db: redis.Redis, keys: Keys) -> tuple[bytes, dict[bytes, bytes]]:
    """The one job in the stream."""
    rows: Any = db.xrange(keys.stream)
    ((entry, fields),) = rows
    return entry, fields


async def waiting_for(worker: Worker, db: redis.Redis, keys: Keys) -> tuple[bytes, float]:
    """The one job that waits for its retry, and the moment it is due."""
    await eventually_async(lambda: worker.stats.retried == 1)
    rows: Any = db.zrange(keys.delayed, 0, -1, withscores=True)
    ((member, due),) = rows
    return member, due


def server_ms(db: redis.Redis) -> int:
    seconds, micros = db.time()
    return int(seconds) * 1000 + int(micros) // 1000


YEAR_MS = 365 * 24 * 3600 * 1000


@pytest.mark.parametrize("ahead_ms", [YEAR_MS, -YEAR_MS])
async def test_a_retry_waits_by_the_server_s_clock_whatever_the_worker_s_shows(
    queue: Queue,
    work: Work,
    db: redis.Redis,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
    ahead_ms: int,
) -> None:
    monkeypatch.setattr("tambomq.chasqui.worker.outcomes.now_ms", lambda: now_ms() + ahead_ms)
    await queue.add("n", 1, backoff=20_000)
    began_ms = server_ms(db)
    async with work(fail) as worker:
        _, due = await waiting_for(worker, db, keys)
    (scheduled,) = emitted_events(db, keys, "retry-scheduled")
    assert began_ms <= due - int(scheduled["backoff_ms"]) <= server_ms(db)


# A fixed wait is capped too, at 30 s by default.
@pytest.mark.parametrize(
    ("options", "backoff", "wait_ms"),
    [
        ({}, 20_000, 20_000),
        ({}, 60_000, 30_000),
        ({}, BackoffSpec.fixed(20_000), 20_000),
        ({}, {"kind": "fixed", "delay_ms": 20_000}, 20_000),
        ({}, BackoffSpec.exponential(60_000, max_ms=70_000), 60_000),
        ({"backoff": 20_000}, None, 20_000),
        ({"backoff": BackoffSpec.exponential(60_000, max_ms=70_000)}, None, 60_000),
        ({"backoff": 5}, BackoffSpec.fixed(20_000), 20_000),
    ],
)
async def test_a_failed_job_waits_as_long_as_it_says_or_else_its_worker(
    queue: Queue,
    work: Work,
    db: redis.Redis,
    keys: Keys,
    options: dict[str, Any],
    backoff: Any,
    wait_ms: int,
) -> None:
    job, began_ms = await queue.add("mail", {"a": 1}, backoff=backoff), server_ms(db)
    async with work(fail, **options) as worker:
        member, due = await waiting_for(worker, db, keys)
    (scheduled,) = emitted_events(db, keys, "retry-scheduled")
    jitter_ms = int(scheduled["backoff_ms"]) - wait_ms
    assert 0 <= jitter_ms < 100
    assert began_ms <= due - int(scheduled["backoff_ms"]) <= server_ms(db)
    name, body = decode_member(member)
    assert name == "mail"
    envelope = decode_envelope(body)
    assert (envelope.id, envelope.attempt) == (job.id, 1)
    assert (db.xlen(keys.stream), pending(db, keys)) == (0, {})


async def test_retries_wait_ever_longer(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    backoff = BackoffSpec.exponential(2, multiplier=3.0, max_ms=20, jitter_ms=0)
    await queue.add("job", None, attempts=5, backoff=backoff)
    async with work(fail) as worker:
        await buried(worker, 1)
    waits = [int(event["backoff_ms"]) for event in emitted_events(db, keys, "retry-scheduled")]
    assert waits == [2, 6, 18, 20]


@pytest.mark.parametrize(
    ("workers", "own", "runs"), [(3, None, 3), (3, 1, 1), (1, 4, 4), (1, None, 1)]
)
async def test_a_job_runs_as_often_as_its_budget_allows(
    queue: Queue, work: Work, workers: int, own: int | None, runs: int
) -> None:
    seen: list[tuple[int, int]] = []

    async def handler(job: Job) -> None:
        seen.append((job.attempt, job.attempts_made))
        raise ValueError

    await queue.add("job", None, attempts=own)
    fast = BackoffSpec.fixed(1, jitter_ms=0)
    async with work(handler, max_attempts=workers, backoff=fast) as worker:
        await buried(worker, 1)
    assert seen == [(n + 1, n) for n in range(runs)]


async def test_with_max_attempts_0_jobs_are_dead_lettered_without_a_run(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    await queue.add("job", None)
    async with work(fail, max_attempts=0) as worker:
        await buried(worker, 1)
    assert worker.stats.failed == 0
    assert emitted_events(db, keys, "active", "failed") == []


async def test_a_job_that_succeeds_at_last_is_done(queue: Queue, work: Work) -> None:
    async def handler(job: Job) -> str:
        if job.attempt < 4:
            raise ValueError
        return f"run {job.attempt}"

    job = await queue.add("job", None, backoff=BackoffSpec.fixed(1, jitter_ms=0))
    async with work(handler, store_results=True) as worker:
        await completed(worker, 1)
    assert await queue.get_job_result(job.id) == "run 4"
    counts = await queue.get_job_counts()
    assert (counts.waiting, counts.active, counts.delayed, counts.dead) == (0, 0, 0, 0)


@pytest.mark.parametrize("dialect", ["page", "engine"])
@pytest.mark.parametrize("name", ["", "mail", "é" * 127, "n" * 255, "n" * 256, "\0odd"])
async def test_a_job_of_any_name_is_retried_under_it(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, name: str, dialect: str
) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.name)
        if job.attempt == 1:
            raise ValueError

    await queue.add(name, None, backoff=BackoffSpec.fixed(1, jitter_ms=0))
    async with work(handler, dialect=dialect) as worker:
        await completed(worker, 1)
    assert seen == [name, name]


@pytest.mark.parametrize(("name", "size"), [("mail", 1), ("n" * 255, 1), ("n" * 256, 4)])
async def test_a_retry_is_stored_in_the_page_dialect_if_that_can_hold_its_name(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, name: str, size: int
) -> None:
    await queue.add(name, None, backoff=20_000)
    async with work(fail) as worker:
        member, _ = await waiting_for(worker, db, keys)
    prefix = len(name).to_bytes(size, "little")
    assert member.startswith(prefix + name.encode() + b"\x95")


async def test_where_another_engine_leads_a_retry_is_stored_as_it_reads_it(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.promoter_lock, "c-engine")
    await queue.add("mail", None, backoff=20_000)
    async with work(fail) as worker:
        member, _ = await waiting_for(worker, db, keys)
    assert member.startswith(b"\x04\0\0\0mail\x95")
    assert (worker.stats.lost, worker.stats.failed) == (0, 1)


# ── dead letters ─────────────────────────────────────────────────────────────


async def test_a_job_that_always_fails_is_dead_lettered_with_its_last_error(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    job = await queue.add("mail", {"a": 1}, attempts=1)
    entry, fields = only_entry(db, keys)
    async with work(fail) as worker:
        await buried(worker, 1)
    assert letters(db, keys) == [
        [
            (b"d", fields[b"d"]),
            (b"n", b"mail"),
            (b"source_id", entry),
            (b"reason", b"retries_exhausted"),
            (b"detail", b"boom"),
            (b"error_type", b"ValueError"),
            (b"traceback", ANY),
        ]
    ]
    (letter,) = await queue.peek_dlq()
    assert decode_envelope(letter.payload).id == job.id
    assert (db.xlen(keys.stream), pending(db, keys)) == (0, {})


async def test_the_envelope_of_a_letter_counts_the_runs_before_the_last(
    queue: Queue, work: Work
) -> None:
    await queue.add("mail", None, attempts=3, backoff=BackoffSpec.fixed(1, jitter_ms=0))
    async with work(fail) as worker:
        await buried(worker, 1)
    (letter,) = await queue.peek_dlq()
    assert decode_envelope(letter.payload).attempt == 2


class NoSuchCustomer(UnrecoverableError):
    pass


@pytest.mark.parametrize("error", [Reject, UnrecoverableError, NoSuchCustomer])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_verdict_of_the_handler_buries_at_once(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, error: type[Reject], kind: str
) -> None:
    def in_thread(_: Job) -> None:
        raise error("no such customer")

    async def on_loop(job: Job) -> None:
        in_thread(job)

    await queue.add("", None)
    entry, fields = only_entry(db, keys)
    async with work(on_loop if kind == "async" else in_thread) as worker:
        await buried(worker, 1)
    assert (worker.stats.failed, worker.stats.retried) == (1, 0)
    assert letters(db, keys) == [
        [
            (b"d", fields[b"d"]),
            (b"source_id", entry),
            (b"reason", b"unrecoverable"),
            (b"detail", b"no such customer"),
            (b"error_type", type_of(error()).encode()),
            (b"traceback", ANY),
        ]
    ]


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        (
            {"x": "y", "n": "mail"},
            [(b"d", b""), (b"reason", b"malformed")],
        ),
        (
            {"d": b"\xc1 is nothing", "n": "mail"},
            [(b"d", b"\xc1 is nothing"), (b"reason", b"decode_failed")],
        ),
        (
            {"d": b"x" * 101, "n": "mail"},
            [(b"d", b"x" * 101), (b"n", b"mail"), (b"reason", b"oversize_payload")],
        ),
        (
            {"d": encode_envelope(Envelope("a", b"\x01", 1, 3)), "n": "mail"},
            [
                (b"d", encode_envelope(Envelope("a", b"\x01", 1, 3))),
                (b"n", b"mail"),
                (b"reason", b"retries_exhausted"),
            ],
        ),
    ],
    ids=["malformed", "decode_failed", "oversize_payload", "retries_exhausted"],
)
async def test_a_job_that_cannot_run_becomes_the_same_dead_letter_as_with_the_engine(
    work: Work, db: redis.Redis, keys: Keys, source: Any, kept: list[tuple[bytes, bytes]]
) -> None:
    entry: Any = db.xadd(keys.stream, source)
    async with work(fail, max_payload_bytes=100, max_attempts=3) as worker:
        await buried(worker, 1)
    expected = [*kept[:-1], (b"source_id", entry), kept[-1]]
    if kept[-1][1] == b"malformed":
        expected.append((b"detail", b"missing or non-bytes payload field"))
    assert letters(db, keys) == [expected]
    assert (worker.stats.failed, db.xlen(keys.stream), pending(db, keys)) == (0, 0, {})


async def test_a_job_that_kills_its_workers_is_buried_unrun(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    job = await queue.add("killer", None)
    # The first death is free, as it is with the engine.
    die_with(db, keys, times=4)
    async with work(fail, max_attempts=3, claim_min_idle_ms=100) as worker:
        await buried(worker, 1)
    assert worker.stats.failed == 0
    (event,) = emitted_events(db, keys, "dlq")
    assert (event["id"], event["attempt"]) == (job.id, "3")


async def test_the_dead_letter_queue_keeps_to_its_cap(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    # A server trims a hundred entries at a time.
    await queue.add_bulk([{"name": "job", "data": None, "attempts": 1}] * 300)
    async with work(fail, dlq_max_stream_len=100) as worker:
        await buried(worker, 300)
    trimmed = sum(int(event["count"]) for event in emitted_events(db, keys, "trimmed"))
    assert {event["reason"] for event in emitted_events(db, keys, "trimmed")} == {"dlq"}
    assert db.xlen(keys.dlq) == 300 - trimmed < 300


async def test_a_letter_that_is_replayed_has_its_whole_budget_again(
    queue: Queue, work: Work
) -> None:
    seen: list[int] = []

    async def handler(job: Job) -> None:
        seen.append(job.attempt)
        raise ValueError

    await queue.add("job", None, attempts=2, backoff=BackoffSpec.fixed(1, jitter_ms=0))
    async with work(handler) as worker:
        await buried(worker, 1)
        assert await queue.replay_dlq() == 1
        await buried(worker, 2)
    assert seen == [1, 2, 1, 2]
