"""Helpers of the fault tests: a load that accounts for its jobs, readers of a queue, bad networks.

The queue is always `QUEUE`, on a server that holds nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Self, cast

import redis

from tambomq.chasqui import Job, Queue, UnrecoverableError, Worker
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member
from tests.chasqui.conftest import working
from tests.servers import eventually_async
from tests.store.proxy import Proxy

QUEUE = "q"
KEYS = Keys(QUEUE)
GROUP = "default"

RUNS = {"plain": 1, "slow": 1, "flaky": 2, "doomed": 2}
"""How often a job of each kind runs until it is completed, if nothing is taken over."""


# ── where jobs lie ───────────────────────────────────────────────────────────


def waiting(db: redis.Redis) -> Counter[str]:
    """The ids of the jobs in the stream, those that run included."""
    return Counter(_id(fields[b"d"]) for _, fields in _entries(db, KEYS.stream))


def dead(db: redis.Redis) -> Counter[str]:
    """The ids of the dead letters."""
    return Counter(_id(fields[b"d"]) for _, fields in _entries(db, KEYS.dlq))


def delayed(db: redis.Redis) -> Counter[str]:
    """The ids of the jobs that are not due yet."""
    members = cast("list[bytes]", db.zrange(KEYS.delayed, 0, -1))
    return Counter(_id(decode_member(member)[1]) for member in members)


def pending(db: redis.Redis, consumer: str) -> int:
    """How many entries are in the hands of *consumer*."""
    rows = db.xpending_range(KEYS.stream, GROUP, "-", "+", 1000, consumer)
    return len(cast("list[Any]", rows))


class EventLog:
    """Counts events by name and job, read in parts, since the events stream is trimmed."""

    def __init__(self, db: redis.Redis) -> None:
        self._db, self._last = db, "-"
        self._ids: dict[str, Counter[str]] = {}

    def of(self, event: str) -> Counter[str]:
        """Return the number of *event* events of each job."""
        self.catch_up()
        return self._ids.get(event, Counter())

    def catch_up(self) -> None:
        """Read the new events."""
        for entry, fields in _entries(self._db, KEYS.events, self._last):
            self._last = f"({entry.decode()}"
            ids = self._ids.setdefault(fields[b"e"].decode(), Counter())
            ids[fields[b"id"].decode()] += 1


def _entries(db: redis.Redis, key: str, after: str = "-") -> list[tuple[bytes, dict[bytes, bytes]]]:
    return cast("list[tuple[bytes, dict[bytes, bytes]]]", db.xrange(key, after))


def _id(envelope: bytes) -> str:
    return decode_envelope(envelope).id


# ── a load ───────────────────────────────────────────────────────────────────


class JobLoad:
    """Adds jobs of every kind and in every way, runs them, and accounts for each.

    What is flaky fails once and is retried; what is doomed dies once and is replayed.
    So in the end each job is completed, and has run as often as `RUNS` says.
    """

    def __init__(self, url: str, *, workers: int = 2, idle_ms: int = 4000) -> None:
        self._url, self._workers, self._idle_ms = url, workers, idle_ms
        self._enough = asyncio.Event()
        self.queue = Queue(QUEUE, redis_url=url)
        self.confirmed: dict[str, str] = {}
        """The kind of each job that was added."""
        self.runs: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self._stack.push_async_callback(self.queue.close)
        for _ in range(self._workers):
            worker = Worker(
                QUEUE,
                self._handle,
                redis_url=self._url,
                concurrency=16,
                claim_min_idle_ms=self._idle_ms,
                backoff=20,
            )
            await self._stack.enter_async_context(working(worker))
        self._producing = asyncio.create_task(self._produce())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._producing.cancel()
        await asyncio.gather(self._producing, return_exceptions=True)
        await self._stack.aclose()

    async def reach(self, more: int, *, after_s: float = 0) -> None:
        """Return when so many *more* jobs have been run, and so many seconds have passed."""
        goal = self.runs.total() + more
        await asyncio.sleep(after_s)
        await eventually_async(lambda: self.runs.total() >= goal, within_s=20)

    async def account(
        self, db: redis.Redis, event_log: EventLog, *, runs_exact: bool = True
    ) -> None:
        """Add no more, wait until all is done, and check that each was, once."""
        self._enough.set()
        await self._producing
        await eventually_async(self._is_done, within_s=25)
        assert (waiting(db), delayed(db), dead(db)) == (Counter(), Counter(), Counter())
        assert event_log.of("completed") == Counter(dict.fromkeys(self.confirmed, 1))
        expected = Counter({id: RUNS[kind] for id, kind in self.confirmed.items()})
        if runs_exact:
            assert self.runs == expected
        else:
            # A job that was taken over may have run twice at once: as doomed, it then did not die.
            assert self.runs.keys() == expected.keys()

    async def _is_done(self) -> bool:
        await self.queue.replay_dlq(1000)
        counts = await self.queue.get_job_counts()
        return not (counts.waiting or counts.active or counts.delayed or counts.dead)

    async def _handle(self, job: Job) -> None:
        self.runs[job.id] += 1
        await asyncio.sleep(1.5 if job.name == "slow" else 0.001)
        if job.name == "flaky" and job.attempt == 1:
            raise ValueError("once more")
        if job.name == "doomed" and self.runs[job.id] == 1:
            raise UnrecoverableError("not ever")

    async def _produce(self) -> None:
        for number in itertools.count():
            if self._enough.is_set():
                return
            await self._add(number)
            if number % 10 == 0:
                self._confirm(await self.queue.add("slow", number))
            await self.queue.replay_dlq(5)
            await asyncio.sleep(0.005)

    async def _add(self, number: int) -> None:
        queue = self.queue
        for kind in ("plain", "flaky", "doomed"):
            # The second has the first one's id, and adds nothing.
            for _ in range(2):
                self._confirm(await queue.add(kind, number, job_id=f"{kind}-{number}"))
        self._confirm(await queue.add("plain", number))
        many: list[dict[str, Any]] = [{"name": "plain", "data": number} for _ in range(4)]
        many.append({"name": "flaky", "data": number, "job_id": f"bulk-{number}"})
        self._confirm(*await queue.add_bulk(many))
        self._confirm(await queue.add("plain", number, job_id=f"late-{number}", delay_ms=100))

    def _confirm(self, *jobs: Job) -> None:
        self.confirmed.update((job.id, job.name) for job in jobs)


# ── what goes wrong ──────────────────────────────────────────────────────────


class BadLine(Proxy):
    """Loses one reply in *one_in*, after its request was done, and hangs up there."""

    def __init__(self, port: int, *, one_in: int = 50) -> None:
        super().__init__(port)
        self._one_in, self._draw = one_in, random.Random(one_in)
        self.lose: list[bytes] = []
        """Replies that have these words in them are lost too, each word once."""
        self.lost = 0
        """How many replies have been lost."""

    async def _passed(self, way: Any, data: bytes, to: asyncio.StreamWriter) -> bool:
        if way == "reply" and self._is_lost(data):
            self.lost += 1
            return True
        return await super()._passed(way, data, to)

    def _is_lost(self, reply: bytes) -> bool:
        for word in self.lose:
            if word in reply:
                self.lose.remove(word)
                return True
        return self._draw.randrange(self._one_in) == 0


def cut_all(db: redis.Redis) -> None:
    """Make the server close all connections but this one."""
    db.client_kill_filter(_type="normal", skipme=True)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process (SIGSTOP) inside the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
