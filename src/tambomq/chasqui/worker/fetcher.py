"""The first stage of a worker: reads entries off the stream and hands them to the handler pool.

It blocks in XREADGROUP, on a separate connection, and asks for as many entries as the
`PrefetchWindow` allows. It also claims entries of dead workers, applies the rate limit, and watches
whether the queue is paused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext, Delivery
from tambomq.chasqui.options import FetchOptions
from tambomq.chasqui.worker.consumer_group import RewindCheck, ensure_group
from tambomq.chasqui.worker.handler_pool import HandlerPool
from tambomq.chasqui.worker.in_flight import InFlight
from tambomq.chasqui.worker.prefetch import PrefetchWindow
from tambomq.clock import Deadline, backoff_delays, now_ms
from tambomq.errors import StoreError, StoreUnavailable, TamboError
from tambomq.log import with_fields
from tambomq.store.aio import AsyncStore
from tambomq.store.features import features

log = logging.getLogger(__name__)

WATCH_EVERY_S = 0.25
MAX_CLAIM_INTERVAL_S, CLAIMS_PER_LEASE = 1.0, 3
LIMITER_RETRY_MS = 500
# CLIENT UNBLOCK does not reach the reading connection on a cluster, so reads are short instead.
CLUSTER_BLOCK_MS = 1000
# After a read with jobs, an empty one of this length means that the queue is drained.
DRAIN_BLOCK_MS = 200
UNBLOCK_S, _STATES = 0.2, ("resumed", "paused")
# A worker whose blocking read is this long overdue is not consuming (`is_consuming`).
MAX_SILENCE_S = 10.0


class Fetcher:
    """Reads for one worker until `stop`."""

    def __init__(
        self,
        read_store: AsyncStore,
        store: AsyncStore,
        context: ConsumerContext,
        options: FetchOptions,
        window: PrefetchWindow,
        in_flight: InFlight,
        pool: HandlerPool,
    ) -> None:
        """Block in reads on *read_store*; make all other calls on *store*."""
        self._read_store, self._store, self._context = read_store, store, context
        self._options, self._window, self._in_flight, self._pool = options, window, in_flight, pool
        self._log = with_fields(log, **context.log_fields)
        self._rewind_check = RewindCheck(store, context, in_flight.entries)
        self._stopped, self._connections_seen = asyncio.Event(), 0
        self._connection: int | None = None
        """The server's number of the connection that reads, for CLIENT UNBLOCK."""
        self._current_read: object | None = None
        self._unblocking: asyncio.Future[None] | None = None
        """The task that ends the read under way after `pause`."""
        self._delivered = False
        """Whether jobs were delivered since the last event ``drained``."""
        # The first: the queue is paused, and the pool too. The second: this worker reads nothing.
        self._paused, self._reading_paused = False, False
        self._idle_on_purpose, self._reads_since = False, 0.0
        """Whether there is a reason not to read (busy handlers, the rate limit, a pause), and when
        the last such reason ended, on the monotonic clock."""
        self.last_fetch_at: float | None = None
        """When a read was last answered, on the monotonic clock."""
        self._may_have_lost_reply = False
        """Whether a connection broke in a read: pending entries of ours may never have arrived."""
        self._claim_every_s = min(MAX_CLAIM_INTERVAL_S, options.idle_ms / 1000 / CLAIMS_PER_LEASE)
        self._claim_at, self._retry_delays = Deadline(0), backoff_delays(longest_s=1.0)

    # ── called by the worker ─────────────────────────────────────────────────

    def stop(self) -> None:
        """Make `run` return; the pool starts no more jobs."""
        self._window.wake()
        self._stopped.set()
        self._pool.set_paused(paused=True)

    def pause(self) -> None:
        """Read nothing more; the pool goes on with what it has."""
        self._reading_paused = True
        self._window.wake()
        self._unblocking = asyncio.ensure_future(self.unblock())

    @property
    def is_consuming(self) -> bool:
        """Whether reads are answered, or there is no need to read."""
        if self._stopped.is_set() or self.last_fetch_at is None:
            return False
        silence_s = self._options.block_ms / 1000 + MAX_SILENCE_S
        since = max(self.last_fetch_at, self._reads_since)
        return self._idle_on_purpose or time.monotonic() - since < silence_s

    async def stopped(self) -> None:
        """Wait for `stop`."""
        await self._stopped.wait()

    # ── reading ──────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Read until `stop`."""
        watching = asyncio.create_task(self._watch())
        # It only ends by itself if it fails, and then `run` raises its error.
        watching.add_done_callback(lambda _: self.stop())
        try:
            while not self._stopped.is_set():
                try:
                    await self._turn()
                except Exception as error:  # noqa: BLE001  (a bug in a turn ends no worker)
                    await self._repair(error)
                    await self._sleep(next(self._retry_delays))
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _turn(self) -> None:
        """Make one step, the first that is due: wait, reconnect, recover, claim, or read."""
        pool, read_store = self._pool, self._read_store
        wanted = self._window.size(
            queued=pool.queued, running=pool.running, in_flight=len(self._in_flight.entries)
        )
        if wanted == 0 or self._paused or self._reading_paused:
            self._idle_on_purpose = True
            await self._window.changed()
            self._idle_on_purpose, self._reads_since = False, time.monotonic()
            return
        if self._connection is None or self._connections_seen != read_store.connections_opened:
            self._connection = await read_store.run(worker_ops.connection_id())
            seen, self._connections_seen = self._connections_seen, read_store.connections_opened
            self._may_have_lost_reply |= 0 < seen < self._connections_seen
            # After a failover the server may be of another version.
            self._context.features = await self._store.follow(features())
            await self._check_paused()
            return
        if self._may_have_lost_reply:
            # What the server sent into a broken connection is pending for us. Reset before calling:
            # if an ACL refuses it, reads go on, and the entries are claimed when their lease ends.
            self._may_have_lost_reply = False
            recover = worker_ops.recover(self._context, self._in_flight.entries)
            await self._hand_over(await self._store.run(recover))
            return
        if not self._context.features.claim and self._claim_at.passed:
            # The server cannot claim within a read (XREADGROUP CLAIM), so claim here, and before
            # the read: while new jobs keep coming, claiming would starve.
            await self._claim(wanted)
            return
        await self._hand_over(deliveries := await self._read(wanted))
        # Let the runners start first: sending the next read takes as long as a short job.
        await asyncio.sleep(0)
        if not deliveries and self._delivered and not self._pool.queued:
            self._delivered = False
            await self._emit("drained")

    async def _read(self, wanted: int) -> list[Delivery]:
        block_ms = DRAIN_BLOCK_MS if self._delivered else self._options.block_ms
        if not self._context.features.claim:
            block_ms = min(block_ms, max(1, int(self._claim_every_s * 1000)))
        # Each store learns from replies that it is on a cluster; one may know before the other.
        if self._read_store.is_cluster or self._store.is_cluster:
            block_ms = min(block_ms, CLUSTER_BLOCK_MS)
        self._current_read = object()
        try:
            deliveries = await self._read_store.run(
                worker_ops.read(self._context, wanted, block_ms, self._options.idle_ms)
            )
            self.last_fetch_at = time.monotonic()
            # Only here: the steps before a read may succeed each time that the read fails.
            self._retry_delays = backoff_delays(longest_s=1.0)
            return deliveries
        finally:
            self._current_read = None

    async def _hand_over(self, deliveries: list[Delivery]) -> None:
        """Hand *deliveries* to the pool, as fast as the rate limit allows."""
        fresh = self._in_flight.add(deliveries)
        self._delivered = self._delivered or bool(fresh)
        try:
            while fresh and self._options.limit is not None and not self._stopped.is_set():
                if self._paused:
                    self._idle_on_purpose = True
                    # Jobs that are granted now would all start together when the queue resumes.
                    await self._sleep(WATCH_EVERY_S)
                    continue
                allowed, wait_ms = await self._ask_limiter(self._options.limit, len(fresh))
                self._pool.accept(fresh[:allowed])
                fresh = fresh[allowed:]
                if fresh:
                    await self._emit("rate-limited", "wait_ms", wait_ms)
                    await self._sleep(wait_ms / 1000)
        finally:
            # All, if there is no rate limit. After `stop`: the rest, which the pool gives back.
            self._pool.accept(fresh)
            self._idle_on_purpose, self._reads_since = False, time.monotonic()

    async def _ask_limiter(self, limit: tuple[int, int], wanted: int) -> tuple[int, int]:
        """Return how many of *wanted* jobs may start, and ms to wait for the others."""
        keys = self._context.keys
        try:
            answer = await self._store.run(worker_ops.limit(keys, *limit, wanted))
        except Exception as error:  # noqa: BLE001  (as in `run`)
            # Raising would hand over all of them, past the limit: ask again instead.
            self._idle_on_purpose = False
            self._log.warning("cannot ask the limiter of queue %r: %s", keys.queue, error)
            return 0, LIMITER_RETRY_MS
        self._idle_on_purpose = True
        return answer

    async def _repair(self, error: Exception) -> None:
        """React to a failed step so that the next one can succeed."""
        queue = self._context.keys.queue
        if isinstance(error, StoreUnavailable):
            self._log.warning("cannot read queue %r: %s", queue, error)
            self._connection, self._may_have_lost_reply = None, True
        elif isinstance(error, StoreError) and error.kind == "NOGROUP":
            text = "the consumer group of queue %r was deleted; creating it again"
            self._log.warning(text, queue)
            with suppress(TamboError):
                await ensure_group(self._store, self._context)
        else:
            # An error of another kind comes, for example, from a credential provider.
            surprise = not isinstance(error, TamboError)
            self._log.error("cannot read queue %r: %s", queue, error, exc_info=surprise)
            self._connection = None
            self._may_have_lost_reply |= surprise

    async def _watch(self) -> None:
        """Poll whether the queue is paused and whether the handlers stall."""
        while True:
            try:
                await self._check_paused()
                await self._rewind_check.check()
                await self._release_if_stalled()
            except Exception as error:  # noqa: BLE001  (as in `run`)
                queue, surprise = self._context.keys.queue, not isinstance(error, TamboError)
                text = "cannot check whether queue %r is paused: %s"
                self._log.warning(text, queue, error, exc_info=surprise)
            await asyncio.sleep(WATCH_EVERY_S)

    async def _check_paused(self) -> None:
        paused = await self._store.run(worker_ops.is_paused(self._context.keys))
        if paused != self._paused:
            self._log.info("queue %r is %s", self._context.keys.queue, _STATES[paused])
            self._paused = paused
            # After `stop` the pool stays paused: what it has queued is given back.
            self._pool.set_paused(paused=paused or self._stopped.is_set())
            self._window.wake()
            if paused:
                await self.unblock()

    async def _release_if_stalled(self) -> None:
        """Give back jobs that were fetched ahead of handlers that turned out to be slow."""
        if self._pool.is_busy and self._pool.queued and self._window.is_stalled:
            await self._pool.release_queued()

    async def _claim(self, wanted: int) -> None:
        """Take over entries whose lease has run out. If that fails, the next turn reads."""
        self._claim_at = Deadline(self._claim_every_s)
        claim = worker_ops.claim(self._context, wanted, self._options.idle_ms)
        claimed = await self._store.run(claim)
        # If it found as many as it asked for, there may be more: claim again before reading.
        if len(claimed) == min(wanted, worker_ops.MAX_CLAIMED):
            self._claim_at = Deadline(0)
        await self._hand_over(claimed)

    async def unblock(self) -> None:
        """Make a read that blocks on the server return at once."""
        read, connection = self._current_read, self._connection
        if connection is None or self._read_store.is_cluster:
            return
        deadline = Deadline(UNBLOCK_S)
        while read and read is self._current_read:
            # The read may not have reached the server yet, so once is not always enough.
            with suppress(StoreError):
                await self._store.run(worker_ops.unblock(connection))
            await asyncio.sleep(0.01)
            if deadline.passed:
                # Probably the store has reconnected, and its connection has another number now.
                await self._read_store.close()

    async def _emit(self, event: str, *fields: str | int) -> None:
        if self._context.events_cap:
            with suppress(StoreError):
                await self._store.run(worker_ops.emit(self._context, now_ms(), event, "", *fields))

    async def _sleep(self, for_s: float) -> None:
        """Sleep, but return at once when stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                await self._stopped.wait()
