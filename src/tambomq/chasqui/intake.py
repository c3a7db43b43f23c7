"""Takes entries off the stream: as many as can run, and a little ahead of the handlers.

How far ahead follows from how fast they are: what they finish in the next few
milliseconds. A slow handler has nothing queued behind it that another worker
could have run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from tambomq.chasqui import worker_ops
from tambomq.chasqui.hand import Hand
from tambomq.chasqui.joining import make_group
from tambomq.chasqui.options import Pace
from tambomq.chasqui.worker_ops import Delivery, Seat
from tambomq.clock import Deadline, now_ms, pauses
from tambomq.errors import StoreError, StoreUnavailable, TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.features import features

log = logging.getLogger(__name__)

AHEAD_S = 0.01
MOST_AHEAD = 500
MOST_UNSETTLED = 2000
PAUSE_LOOK_S = 0.25
CLAIM_LOOK_S = 1.0
LIMIT_LOOK_MS = 500
# Handlers that have not finished one job for so long keep what is queued behind them waiting.
SHED_AFTER_S = 1.0
# A worker on a cluster cannot be told to stop reading: its reads are short instead.
CLUSTER_BLOCK_MS = 1000
# After a page with jobs, so soon is it known that there are no more.
DRAIN_BLOCK_MS = 200
UNBLOCK_S = 0.2


class Runners(Protocol):
    """Those who run what is read."""

    @property
    def queued(self) -> int:
        """Jobs that wait for a runner."""

    @property
    def running(self) -> int:
        """Jobs that run."""

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        """Run *deliveries*, as soon as may be."""

    def hold_on(self, *, paused: bool) -> None:
        """Start no job while the queue is paused."""

    async def shed(self) -> None:
        """Let others have what is queued."""


class Intake:
    """Reads for one worker, on a connection of its own."""

    def __init__(
        self,
        stores: tuple[AsyncStore, AsyncStore],
        seat: Seat,
        pace: Pace,
        hand: Hand,
        runners: Runners,
    ) -> None:
        """Read on the first of *stores*, ask on the second."""
        self._reads, self._asks = stores
        self._seat, self._pace, self._hand, self._runners = seat, pace, hand, runners
        self._room, self._stopped = hand.room, asyncio.Event()
        self._stopping = False
        self._connection: int | None = None
        self._reading: object | None = None
        self._delivered = False
        self._finished, self._rate = 0, 0.0
        self._since = self._finished_at = time.monotonic()
        self._paused = False
        self._is_unsure = False
        """Whether a reply may have been lost, with entries that are ours."""
        self._claim_every_s = min(CLAIM_LOOK_S, pace.idle_ms / 3000)
        self._claim_at = Deadline(0)

    # ── what the worker tells ────────────────────────────────────────────────

    def finished(self) -> None:
        """Count a run that has ended."""
        self._finished += 1
        self._finished_at = time.monotonic()
        if not self._room.is_set():
            self._room.set()

    def stop(self) -> None:
        """Let `run` end."""
        self._stopping = True
        self._room.set()
        self._stopped.set()
        self._runners.hold_on(paused=True)

    async def stopped(self) -> None:
        """Return when it was told to stop."""
        await self._stopped.wait()

    # ── reading ──────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Read until `stop`."""
        wait = pauses(longest_s=1.0)
        watching = asyncio.create_task(self._watch())
        try:
            while not self._stopping:
                try:
                    await self._turn()
                    wait = pauses(longest_s=1.0)
                except TamboError as error:
                    await self._mend(error)
                    await self._sleep(next(wait))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _turn(self) -> None:
        wanted = self._wanted()
        if wanted == 0 or self._paused:
            self._room.clear()
            await self._room.wait()
            return
        if self._connection is None:
            self._connection = await self._reads.run(worker_ops.connection_id())
            # Another server may have taken over, which cannot do the same.
            self._seat.has = await self._asks.follow(features())
            await self._look_for_pause()
            return
        if self._is_unsure:
            # What the server sent into a broken connection is ours all the same.
            recovered = await self._asks.run(worker_ops.recover(self._seat, self._hand.held))
            self._is_unsure = False
            await self._take(recovered)
            return
        if not self._seat.has.claim and self._claim_at.passed:
            # Before new jobs, which could keep us busy for ever.
            await self._claim(wanted)
            return
        deliveries = await self._read(wanted)
        await self._take(deliveries)
        # Runners first: to send the next read takes as long as to run a short job.
        await asyncio.sleep(0)
        if not deliveries and self._delivered and not self._runners.queued:
            self._delivered = False
            await self._tell("drained")

    def _wanted(self) -> int:
        """How many entries to ask for: free slots, and what will be free in a moment."""
        now = time.monotonic()
        if (elapsed := now - self._since) > AHEAD_S / 4:
            self._rate = self._finished / elapsed
            self._finished, self._since = 0, now
        ahead = min(MOST_AHEAD, int(self._rate * AHEAD_S))
        allowed = self._pace.concurrency + ahead
        busy = self._runners.queued + self._runners.running
        free = allowed - busy
        # Half a page at least, unless a runner has nothing to do.
        if busy > self._pace.concurrency and free < allowed // 2:
            return 0
        # What has ended and is not settled yet is in our hands too, and must not pile up.
        unsettled = len(self._hand.held) - busy
        return max(0, min(free, self._pace.read_count, MOST_UNSETTLED - unsettled))

    async def _read(self, wanted: int) -> list[Delivery]:
        block_ms = DRAIN_BLOCK_MS if self._delivered else self._pace.block_ms
        if not self._seat.has.claim:
            block_ms = min(block_ms, max(1, int(self._claim_every_s * 1000)))
        # The store that reads learns it only from its first read, which would be a long one.
        if self._reads.is_cluster or self._asks.is_cluster:
            block_ms = min(block_ms, CLUSTER_BLOCK_MS)
        self._reading = object()
        try:
            return await self._reads.run(
                worker_ops.read(self._seat, wanted, block_ms, self._pace.idle_ms)
            )
        finally:
            self._reading = None

    async def _take(self, deliveries: Sequence[Delivery]) -> None:
        fresh = self._hand.take(deliveries)
        self._delivered = self._delivered or bool(fresh)
        try:
            while fresh and self._pace.limit is not None and not self._stopping:
                granted, wait_ms = await self._granted(self._pace.limit, len(fresh))
                self._runners.accept(fresh[:granted])
                fresh = fresh[granted:]
                if fresh:
                    await self._tell("rate-limited", "wait_ms", wait_ms)
                    await self._sleep(wait_ms / 1000)
        finally:
            # Also when this is cancelled: they are in our hands, and given back from there.
            self._runners.accept(fresh)

    async def _granted(self, limit: tuple[int, int], wanted: int) -> tuple[int, int]:
        """How many of *wanted* jobs may start, and ms to wait for the others."""
        try:
            return await self._asks.run(worker_ops.limit(self._seat.keys, *limit, wanted))
        except TamboError as error:
            # They are in our hands and kept from others: to leave would be to lose them.
            log.warning("cannot ask the limiter of %r: %s", self._seat.keys.queue, error)
            return 0, LIMIT_LOOK_MS

    async def _mend(self, error: TamboError) -> None:
        """Do what can be done so that the next read succeeds."""
        queue = self._seat.keys.queue
        if isinstance(error, StoreUnavailable):
            log.warning("cannot read queue %r: %s", queue, error)
            self._connection, self._is_unsure = None, True
        elif str(error).startswith("NOGROUP"):
            log.warning("the group of queue %r is gone; making it again", queue)
            with suppress(TamboError):
                await make_group(self._asks, self._seat)
        else:
            log.error("cannot read queue %r: %s", queue, error)
            self._connection = None

    # ── what goes on beside ──────────────────────────────────────────────────

    async def _watch(self) -> None:
        """Look for a pause, and for jobs that wait behind slow ones."""
        while True:
            try:
                await self._look_for_pause()
                await self._shed()
            except TamboError as error:
                log.warning("cannot look after queue %r: %s", self._seat.keys.queue, error)
            await asyncio.sleep(PAUSE_LOOK_S)

    async def _look_for_pause(self) -> None:
        paused = await self._asks.run(worker_ops.is_paused(self._seat.keys))
        if paused != self._paused:
            log.info("queue %r is %s", self._seat.keys.queue, "paused" if paused else "resumed")
            self._paused = paused
            self._runners.hold_on(paused=paused)
            self._room.set()
            if paused:
                await self.unblock()

    async def _shed(self) -> None:
        """Give back what was read ahead of handlers that turned out to be slow."""
        busy = self._runners.running >= self._pace.concurrency
        if busy and self._runners.queued and time.monotonic() - self._finished_at > SHED_AFTER_S:
            await self._runners.shed()

    async def _claim(self, most: int) -> None:
        call = worker_ops.claim(self._seat, most, self._pace.idle_ms)
        claimed = await self._asks.run(call)
        # As many as were asked for: there may be more.
        if len(claimed) < min(most, worker_ops.MOST_CLAIMED):
            self._claim_at = Deadline(self._claim_every_s)
        await self._take(claimed)

    async def unblock(self) -> None:
        """Let a read that waits on the server come back at once, with what it has."""
        reading, connection = self._reading, self._connection
        if connection is None or self._reads.is_cluster:
            return
        patience = Deadline(UNBLOCK_S)
        while reading and reading is self._reading:
            # It may not have reached the server yet, so once is not always enough.
            with suppress(StoreError):
                await self._asks.run(worker_ops.unblock(connection))
            await asyncio.sleep(0.01)
            if patience.passed:
                # The store has made another connection since we asked which one it is.
                await self._reads.close()

    async def _tell(self, event: str, *fields: str | int) -> None:
        if self._seat.events_cap:
            with suppress(StoreError):
                await self._asks.run(worker_ops.emit(self._seat, now_ms(), event, "", *fields))

    async def _sleep(self, for_s: float) -> None:
        """Sleep, unless told to stop."""
        self._room.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                while not self._stopping:
                    await self._room.wait()
                    self._room.clear()
