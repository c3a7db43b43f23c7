"""Runs what is due at a time, in this process: the jobs of a queue with time moved forward.

Time goes from one due job to the next. At each stop due jobs are promoted and a worker of this
process runs them; what this run delays counts from that stop, and not from the real time.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from tambomq.chasqui.bulk import scan
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.leader.scheduler import Scheduler
from tambomq.chasqui.ops import leader as leader_ops
from tambomq.chasqui.ops.add import CONSUMER_PREFIX
from tambomq.chasqui.ops.leader import LeaderConfig
from tambomq.errors import InvalidFormat, StoreError
from tambomq.failures import headline, text_of, type_of
from tambomq.ids import ulid
from tambomq.jobs.recurring import register
from tambomq.jobs.testing.recording import RecordingWorker
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

if TYPE_CHECKING:
    from tambomq.jobs.jobs import Jobs

_LOOK_EVERY_S = 0.002


class JobRun(msgspec.Struct, frozen=True):
    """One run of a job by `Jobs.run_due`."""

    name: str
    id: str
    attempt: int
    outcome: str
    """``completed``, ``retried``, ``dead`` or ``cancelled``, as Redis has decided it."""
    at: datetime
    """When it ran, by the clock that was moved forward."""
    result: Any = None
    """What the function returned, as `JobHandle.result` returns it."""
    error: BaseException | None = None
    """What the function raised, or `RemoteProtocolError` if its result is not of its type."""

    def __repr__(self) -> str:
        error = self.error
        why = "" if error is None else f", {headline(type_of(error), text_of(error))}"
        return f"<{self.name} #{self.attempt}: {self.outcome}{why}>"


async def run_due(
    jobs: Jobs, now: datetime | float | None, max_runs: int, timeout_s: float
) -> list[JobRun]:
    """Run what is due at *now*; see `Jobs.run_due`."""
    worker = RecordingWorker(jobs)
    store = AsyncStore(jobs.connections.endpoint)
    clock = _MovedClock(store, Keys(jobs.queue_name))
    running: asyncio.Task[None] | None = None
    try:
        until_ms = _until_ms(now, await store.run(_server_time()))
        await clock.lead()
        await register(jobs)
        running = asyncio.create_task(worker.run())
        stops = _Stops(jobs, clock, worker, running, timeout_s)
        await stops.run(until_ms, max_runs)
        return stops.runs
    finally:
        if running is not None:
            await worker.close()
            await asyncio.wait([running])
        await clock.resign()
        await store.close()


class _Stops:
    """Goes from one time at which something is due to the next."""

    # fmt: off
    def __init__(
        self, jobs: Jobs, clock: _MovedClock, worker: RecordingWorker,
        running: asyncio.Task[None], timeout_s: float,
    ) -> None:
        # fmt: on
        self._jobs, self._clock, self._worker = jobs, clock, worker
        self._running, self._timeout_s = running, timeout_s
        self.runs: list[JobRun] = []

    async def run(self, until_ms: int, max_runs: int) -> None:
        """Stop now, then at each time until *until_ms* at which something is due."""
        at_ms: int | None = min(until_ms, await self._clock.real_ms())
        while at_ms is not None and at_ms <= until_ms:
            delayed = await self._clock.move_to(at_ms)
            await self._drain(max_runs - len(self.runs), max_runs)
            await self._clock.shift_added(delayed)
            self._collect(at_ms)
            at_ms = await self._clock.next_due_ms(at_ms)

    async def _drain(self, may_run: int, max_runs: int) -> None:
        """Wait until nothing waits and nothing runs."""
        deadline = time.monotonic() + self._timeout_s
        queue = self._jobs.queue
        while True:
            # Counts of waiting and active jobs are read one after the other, and a job may move
            # between them. The length of the stream is one number.
            left = await self._clock.stream_length()
            # Before the return: a quick run has ended already, and the next stop has others.
            if len(self._worker.ended) > may_run:
                last = self._worker.ended[-1].job.name
                raise RuntimeError(
                    f"more than {max_runs} runs, the last of {last!r}: give max_runs"
                )
            if not left and not self._worker.in_flight:
                return
            if await queue.is_paused():
                raise RuntimeError(f"queue {queue.name!r} is paused: nothing runs until it resumes")
            if self._running.done():
                raise RuntimeError("the worker has ended") from self._running.exception()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"after {self._timeout_s:g} s queue {queue.name!r} has {left} jobs; "
                    f"runs here: {self._worker.current or 'none'}"
                )
            await asyncio.sleep(_LOOK_EVERY_S)

    def _collect(self, at_ms: int) -> None:
        ended, self._worker.ended = self._worker.ended, []
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        for each in ended:
            job = each.job
            outcome = self._worker.outcomes.pop((job.id, job.attempt), "lost")
            self.runs.append(
                JobRun(job.name, job.id, job.attempt, outcome, at, each.result, each.error)
            )


class _MovedClock:
    """The leaders of a queue, by a clock that is moved forward."""

    def __init__(self, store: AsyncStore, keys: Keys) -> None:
        self._store, self._keys = store, keys
        self._config = LeaderConfig(keys, f"{CONSUMER_PREFIX}run-due-{ulid(0)}")
        self._scheduler, self._ahead_ms = Scheduler(store, self._config), 0

    async def real_ms(self) -> int:
        """Return the server's time."""
        return await self._store.run(_server_time())

    async def stream_length(self) -> int:
        """Return how many jobs wait or run."""
        return await self._store.run(scan.length(self._keys.stream))

    async def lead(self, at_ms: int = 0) -> None:
        """Fire what is due at *at_ms*; raise `RuntimeError` if a worker leads the queue."""
        self._require(await self._scheduler.fire_at(at_ms))

    async def move_to(self, at_ms: int) -> set[bytes]:
        """Fire and promote what is due at *at_ms*; return the jobs that are still delayed."""
        # Read first: from the first fire on, the worker may add to them.
        delayed = await self._members("-inf", "+inf")
        await self.lead(at_ms)
        now = await self.real_ms()
        self._ahead_ms = at_ms - now
        for member, score in delayed:
            if now < score <= at_ms:
                # The promoter reads the server's clock: for it the job has to be due now.
                await self._store.run(_set_score(self._keys, member, now))
        while (promoted := await self._store.run(leader_ops.promote(self._config))) is not None:
            if not promoted.ids and not promoted.buried:
                break
        self._require(leads=promoted is not None)
        return {member for member, score in delayed if score > at_ms}

    async def shift_added(self, before: set[bytes]) -> None:
        """Make jobs that were delayed since *before* due later, by as much as the clock is ahead.

        The clock is ahead by as much as when it was moved, so the time that a run takes also delays
        the jobs that it adds.
        """
        if self._ahead_ms <= 0:
            return
        for member, score in await self._members("-inf", "+inf"):
            if member not in before:
                await self._store.run(_set_score(self._keys, member, score + self._ahead_ms))

    async def next_due_ms(self, after_ms: int) -> int | None:
        """Return when the next job or recurring job is due; `None` if there is none."""
        first = await self._store.run(scan.score_at(self._keys.delayed, "-inf", "+inf", 0))
        fire = await self._store.run(leader_ops.next_fire(self._keys))
        known = [ms for ms in (first, fire) if ms is not None]
        return max(min(known), after_ms + 1) if known else None

    async def resign(self) -> None:
        """Let workers lead again."""
        with suppress(StoreError):
            for lock in (self._keys.promoter_lock, self._keys.scheduler_lock):
                await self._store.run(leader_ops.resign(self._config, lock))

    async def _members(self, low: str, high: str) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        while True:
            call = scan.members(self._keys.delayed, low, high, len(found))
            members, scores = await self._store.run(call)
            found += zip(members, map(scan.moment, scores), strict=True)
            if len(members) < scan.COUNT:
                return found

    def _require(self, leads: bool) -> None:
        if not leads:
            raise RuntimeError(
                f"a worker leads queue {self._keys.queue!r}: run_due needs the queue for itself"
            )


def _until_ms(now: datetime | float | None, server_ms: int) -> int:
    if now is None:
        return server_ms
    if isinstance(now, datetime):
        return int((now if now.tzinfo else now.replace(tzinfo=UTC)).timestamp() * 1000)
    if not isinstance(now, int | float):
        raise InvalidFormat("now", now, "a datetime, or seconds from now")
    return server_ms + int(now * 1000)


def _server_time() -> Call[int]:
    return Call("TIME", (), (), _milliseconds, repeatable=True)


def _milliseconds(reply: list[bytes]) -> int:
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def _set_score(keys: Keys, member: bytes, score: int) -> Call[int]:
    return Call("ZADD", (keys.delayed,), ("XX", score, member), int, repeatable=True)
