"""Workers that are killed or frozen: no job is lost, and none is settled twice."""

from __future__ import annotations

import itertools
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Event, Thread
from typing import Any, Self, cast

import msgspec
import pytest
import redis

from tambomq.chasqui import BlockingQueue, WorkerStats
from tests.chasqui.faults import QUEUE, EventLog, dead, delayed, frozen, pending, waiting
from tests.chasqui.worker_process import worker_process
from tests.servers import Server, eventually
from tests.servers.kinds import kinds


@pytest.fixture(params=kinds("valkey", "redis8"))
def either_server(request: pytest.FixtureRequest, running: Callable[[str], Server]) -> Server:
    """A server where workers claim by a script, and one where they claim as they read."""
    server = running(request.param)
    with redis.Redis.from_url(server.url) as admin:
        admin.flushall()
    return server


@pytest.fixture
def either_db(either_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(either_server.url) as client:
        yield client


def lines(db: redis.Redis, key: str) -> list[tuple[str, str, int]]:
    """Return what handlers wrote: consumer, job and attempt."""
    rows = [line.decode().split() for line in cast("list[bytes]", db.lrange(key, 0, -1))]
    return [(consumer, id, int(attempt)) for consumer, id, attempt in rows]


def stats(db: redis.Redis, consumer: str) -> WorkerStats:
    stored = cast("bytes | None", db.hget("stats", consumer))
    return msgspec.json.decode(stored, type=WorkerStats) if stored else WorkerStats()


# ── killed under load ────────────────────────────────────────────────────────


class Producer:
    """Adds *per_s* jobs a second from a thread, and lists those that were confirmed."""

    def __init__(self, url: str, per_s: int) -> None:
        self._queue, self._batch = BlockingQueue(QUEUE, redis_url=url), per_s // 20
        self.ids: list[str] = []
        self._enough = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._queue.close()

    def stop(self) -> None:
        """Add no more."""
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._enough.wait(max(0.0, due - time.monotonic())):
            jobs = self._queue.add_bulk([{"name": "job", "data": 0}] * self._batch)
            self.ids += [job.id for job in jobs]
            due += 1 / 20


class Crew:
    """Eight worker processes; a killed one is replaced."""

    def __init__(self, stack: ExitStack, url: str, db: redis.Redis, **options: Any) -> None:
        self._stack, self._url, self._db, self._options = stack, url, db, options
        self._numbers = itertools.count()
        self.at_work: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: list[str] = []
        self.orphans = 0
        """Jobs that the killed had in their hands."""
        for _ in range(8):
            self._hire()
        eventually(lambda: db.hlen("stats") == 8, within_s=30)

    def kill_next(self) -> None:
        """Kill the oldest; its jobs are claimed by others."""
        consumer, process = next(iter(self.at_work.items()))
        del self.at_work[consumer]
        process.kill()
        process.wait()
        self.killed.append(consumer)
        self.orphans += pending(self._db, consumer)
        self._hire()
        eventually(lambda: pending(self._db, consumer) == 0)

    def _hire(self) -> None:
        consumer = f"w{next(self._numbers)}"
        started = worker_process(self._url, consumer, **self._options)
        self.at_work[consumer] = self._stack.enter_context(started)


def check_runs(db: redis.Redis, event_log: EventLog, ids: list[str], killed: list[str]) -> None:
    """Check that each job was completed once, and run again only where its worker was killed."""
    ran: dict[str, list[str]] = {}
    for consumer, id, _ in lines(db, "begun"):
        ran.setdefault(id, []).append(consumer)
    assert ran.keys() == set(ids)
    assert event_log.of("completed") == Counter(dict.fromkeys(ids, 1))
    assert (waiting(db), delayed(db), dead(db)) == (Counter(), Counter(), Counter())
    again = {id: consumer for id, consumer in ran.items() if len(consumer) > 1}
    assert all(set(consumer[:-1]) <= set(killed) for consumer in again.values()), again


def kill_under_load(
    server: Server, *, per_s: int, for_s: float, idle_ms: int, kill_every_s: float
) -> None:
    """Kill workers in turn, and account for every job."""
    with redis.Redis.from_url(server.url) as db, ExitStack() as stack:
        event_log = EventLog(db)
        crew = Crew(stack, server.url, db, concurrency=25, claim_min_idle_ms=idle_ms, takes_s=0.1)
        with Producer(server.url, per_s) as producer:
            began = time.monotonic()
            for turn in range(1, int(for_s / kill_every_s) + 1):
                due = began + turn * kill_every_s
                eventually(lambda due=due: time.monotonic() > due, within_s=kill_every_s)  # type: ignore[misc]
                crew.kill_next()
                event_log.catch_up()
            producer.stop()
            eventually(lambda: not waiting(db), within_s=20)
            check_runs(db, event_log, producer.ids, crew.killed)
        assert crew.orphans


@pytest.mark.slow
def test_workers_killed_in_turn_under_load_lose_nothing(server: Server) -> None:
    kill_under_load(server, per_s=300, for_s=16, idle_ms=5000, kill_every_s=4)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", kinds("valkey", "redis8"))
def test_workers_killed_in_turn_for_a_minute_at_a_thousand_jobs_a_second_lose_nothing(
    running: Callable[[str], Server], kind: str
) -> None:
    server = running(kind)
    with redis.Redis.from_url(server.url) as admin:
        admin.flushall()
    kill_under_load(server, per_s=1000, for_s=60, idle_ms=5000, kill_every_s=6)


@pytest.mark.slow
def test_a_job_that_kills_its_worker_each_time_ends_in_the_dead_letter_queue(
    either_server: Server, either_db: redis.Redis
) -> None:
    options = {"claim_min_idle_ms": 300, "max_attempts": 2, "die": True}
    with BlockingQueue(QUEUE, redis_url=either_server.url) as queue:
        poison = queue.add("poison", 0)
        # Its first delivery is free, each further one counts as an attempt.
        for deaths in (1, 2, 3):
            with worker_process(either_server.url, f"w{deaths}", **options) as worker:
                assert worker.wait(120) == 1
            assert either_db.llen("begun") == deaths
        with worker_process(either_server.url, "w4", **options) as worker:
            eventually(lambda: dead(either_db), within_s=20)
            assert worker.poll() is None
        (letter,) = queue.peek_dlq()
    assert letter.reason == "retries_exhausted"
    assert dead(either_db) == Counter([poison.id])
    assert not waiting(either_db)
    assert either_db.llen("begun") == 3


# ── stopped while a job runs ─────────────────────────────────────────────────

KINDS = ("plain", "result", "flaky", "doomed")


@pytest.mark.slow
def test_a_worker_that_was_frozen_for_too_long_can_settle_nothing(
    either_server: Server, either_db: redis.Redis
) -> None:
    db, url = either_db, either_server.url
    options = {"claim_min_idle_ms": 1000, "store_results": True, "backoff": 3_600_000}
    with BlockingQueue(QUEUE, redis_url=url) as queue, ExitStack() as stack:
        for kind in KINDS:
            queue.add(kind, 0, job_id=kind)
        first = stack.enter_context(worker_process(url, "first", hold="go first", **options))
        eventually(lambda: db.llen("begun") == 4, within_s=20)
        with frozen(first.pid):
            stack.enter_context(worker_process(url, "second", hold="go second", **options))
            eventually(lambda: db.llen("begun") == 8, within_s=20)
        db.set("go first", 1)
        # It ends in every way there is, and none of them counts.
        eventually(lambda: stats(db, "first").lost == 4)
        assert stats(db, "first") == WorkerStats(received=4, failed=2, lost=4)
        assert waiting(db) == Counter(KINDS)
        assert pending(db, "second") == 4
        assert (delayed(db), dead(db)) == (Counter(), Counter())
        assert queue.get_job_result("result") is None
        db.set("go second", 1)
        eventually(lambda: not waiting(db))
        assert (delayed(db), dead(db)) == (Counter(["flaky"]), Counter(["doomed"]))
        assert queue.get_job_result("result") == "second"
        (letter,) = queue.peek_dlq()
        assert letter.detail == "second refuses"
        settled = WorkerStats(received=4, completed=2, failed=2, retried=1, buried=1)
        eventually(lambda: stats(db, "second") == settled)
    assert EventLog(db).of("completed") == Counter(["plain", "result"])
    assert EventLog(db).of("failed") == Counter(["flaky", "doomed"])


@pytest.mark.slow
def test_a_job_that_another_worker_has_settled_stays_settled(
    either_server: Server, either_db: redis.Redis
) -> None:
    db, url = either_db, either_server.url
    options = {"claim_min_idle_ms": 1000, "store_results": True, "backoff": 3_600_000}
    with BlockingQueue(QUEUE, redis_url=url) as queue, ExitStack() as stack:
        for kind in KINDS:
            queue.add(kind, 0, job_id=kind)
        first = stack.enter_context(worker_process(url, "first", hold="go first", **options))
        eventually(lambda: db.llen("begun") == 4, within_s=20)
        with frozen(first.pid):
            stack.enter_context(worker_process(url, "second", **options))
            eventually(lambda: db.llen("ended") == 4 and not waiting(db), within_s=20)
        db.set("go first", 1)
        eventually(lambda: stats(db, "first").lost == 4)
        assert queue.get_job_result("result") == "second"
        (letter,) = queue.peek_dlq()
        assert letter.detail == "second refuses"
    assert (waiting(db), delayed(db)) == (Counter(), Counter(["flaky"]))
    assert EventLog(db).of("completed") == Counter(["plain", "result"])
    assert EventLog(db).of("failed") == Counter(["flaky", "doomed"])


@pytest.mark.slow
def test_a_worker_that_was_frozen_for_less_than_its_lease_keeps_its_job(
    server: Server, db: redis.Redis
) -> None:
    with BlockingQueue(QUEUE, redis_url=server.url) as queue, ExitStack() as stack:
        queue.add("plain", 0, job_id="plain")
        options = {"claim_min_idle_ms": 30_000, "concurrency": 1}
        first = stack.enter_context(worker_process(server.url, "first", hold="go", **options))
        eventually(lambda: db.llen("begun") == 1, within_s=20)
        stack.enter_context(worker_process(server.url, "second", **options))
        eventually(lambda: db.hexists("stats", "second"), within_s=20)
        first.send_signal(signal.SIGSTOP)
        try:
            other = queue.add("plain", 0)
            eventually(lambda: db.llen("ended") == 1, within_s=20)
        finally:
            first.send_signal(signal.SIGCONT)
        db.set("go", 1)
        eventually(lambda: not waiting(db))
        assert Counter(lines(db, "begun")) == Counter(
            [("first", "plain", 1), ("second", other.id, 1)]
        )
