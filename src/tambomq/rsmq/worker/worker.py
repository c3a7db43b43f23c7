"""The RSMQ worker: runs a handler for each message of a queue.

A message is deleted when its handler returns. When the handler raises, the
message is retried after a backoff; after `max_receives` it goes to the
dead-letter queue. While the handler runs, a heartbeat keeps the message hidden.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from tambomq.clock import backoff_delays
from tambomq.errors import HandlersStuck, StoreError, StoreRefused, StoreUnavailable
from tambomq.journal.policy import JournalBounds
from tambomq.log import with_fields
from tambomq.rsmq.keys import DEAD_SUFFIX, NAMESPACE, Keys, check_dead_queue, check_queue
from tambomq.rsmq.longpoll import POLL_EVERY_S, poll_delay_s
from tambomq.rsmq.model import DEFAULT_VT, Message, QueueAttributes, check_count, check_seconds
from tambomq.rsmq.ops import messages as message_ops
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.rsmq.ops.journal import policy_for_queue
from tambomq.rsmq.worker.backoff import Backoff
from tambomq.rsmq.worker.control import WorkerControl
from tambomq.rsmq.worker.lease import RsmqLease
from tambomq.rsmq.worker.message_runs import (
    FINAL_SETTLE_S,
    Handler,
    MessageRunOptions,
    MessageRuns,
)
from tambomq.rsmq.worker.server_clock import ServerClock
from tambomq.rsmq.worker.settler import Settler
from tambomq.rsmq.worker.threads import HandlerThreads
from tambomq.runtime.heartbeat import heartbeat
from tambomq.runtime.observer import guarded
from tambomq.runtime.signals import run_until_signalled
from tambomq.store.aio import AsyncStore
from tambomq.store.aio_pubsub import Subscription
from tambomq.store.endpoint import PATIENCE_S, URL, Credentials, Tls

log = logging.getLogger(__name__)

DEFAULT_BACKOFF = Backoff()


class RsmqWorker(WorkerControl):
    """Receives messages of *queue* and runs *handler* for each, *concurrency* at a time.

    *vt*: visibility timeout in seconds; without one, the queue's own. *heartbeat* renews
    it while the handler runs: from a ``"thread"``, or from a ``"process"`` if handlers
    hold the GIL for longer than *vt*; ``None`` renews nothing.

    *max_receives*: after so many receives a message goes to *dead_queue* (``<queue>-dead``);
    ``None`` retries for ever. *timeout_s*: a handler that takes longer has failed; a plain
    function keeps its thread until it returns, and `run` raises `HandlersStuck` if none is left.
    *grace_s*: how long `stop` waits for handlers before it releases their messages.
    *journal*: receives and outcomes are recorded in the queue's journal. `run` retries an
    unreachable server without end, *patience_s* seconds at a time.
    """

    def __init__(  # noqa: PLR0913  (options, all by keyword)
        self,
        queue: str,
        handler: Handler,
        *,
        url: str | AsyncStore = URL,
        ns: str = NAMESPACE,
        concurrency: int = 10,
        vt: float | None = None,
        heartbeat: str | None = "thread",
        max_receives: int | None = 5,
        dead_queue: str | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        timeout_s: float | None = None,
        grace_s: float = 30.0,
        realtime: bool = False,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        journal: bool | JournalBounds = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Check the options; `run` connects."""
        super().__init__(check_queue(queue))
        self._log = with_fields(log, queue=queue)
        self.dead_queue = check_dead_queue(dead_queue or queue + DEAD_SUFFIX, of=queue)
        self._keys, self._journal = Keys(ns), policy_for_queue(ns, queue, journal)
        self._handler, self._own_store = handler, not isinstance(url, AsyncStore)
        if not isinstance(url, AsyncStore):
            url = AsyncStore(url, tls=tls, credentials=credentials, patience_s=patience_s)
        self._store = url
        self._concurrency = check_count(concurrency)
        self._vt = None if vt is None else check_seconds("vt", vt)
        self._heartbeat_kind = heartbeat
        self.grace_s = grace_s
        max_receives = None if max_receives is None else check_count(max_receives)
        self._run_options = MessageRunOptions(
            max_receives, self.dead_queue, backoff, timeout_s, realtime
        )

    # ── run ──────────────────────────────────────────────────────────────────

    def run_forever(self) -> None:
        """Run until SIGINT or SIGTERM; a second signal releases running messages at once."""
        run_until_signalled(self.run, self.stop, lambda: self._stopping)

    async def run(self) -> None:
        """Handle messages until `stop`; raise `QueueNotFound` if the queue does not exist.

        Raises `HandlersStuck` when handlers that timed out occupy all threads.

        Waits for the server however long it is unreachable. When cancelled, it releases
        running messages and ends at once.
        """
        self._running = True
        try:
            await self._work()
        finally:
            self._running = False
            if self._own_store:
                await self._store.close()

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._busy, self._wakeup = 0, asyncio.Event()
        self._clock = ServerClock(self._store, self._keys, self.queue)
        found = await self._read_attributes()
        if found is None:
            return
        self._visibility_s = self._vt or found.vt or DEFAULT_VT
        lease = RsmqLease(self._store.endpoint, self._keys.ns, self.queue, self._visibility_s)
        self._heartbeat = heartbeat(self._heartbeat_kind, lease)
        self._settler = self._settling = Settler(
            self._store, self._keys, self.queue, self._heartbeat, self.stats, self._journal
        )
        options, observer = self._run_options, guarded(self.observer)
        self._threads = HandlerThreads(self._handler, self._concurrency, options.timeout_s)
        self._runs = MessageRuns(
            self.queue, self._handler, options, self._settler, self._threads, observer, self._wake
        )
        fetching = asyncio.create_task(self._fetch())
        runners = [asyncio.create_task(self._run_handlers()) for _ in range(self._concurrency)]
        try:
            stuck = self._threads.stuck
            await asyncio.wait((fetching, stuck), return_when=asyncio.FIRST_COMPLETED)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.grace_s):
                    await self._wait_until_idle()
        finally:
            await self._shut_down([fetching, *runners])
        if stuck.done():
            error = HandlersStuck(self.queue, stuck.result())
            self._log.error("%s", error)
            raise error
        fetching.result()

    async def _read_attributes(self) -> QueueAttributes | None:
        """Return the queue's settings once the server can be reached; `None` after `stop`."""
        wait = backoff_delays()
        while not self._stopping:
            try:
                return await self._store.run(queue_ops.attributes(self._keys, self.queue))
            except StoreUnavailable as error:
                await self._pause("read", error, next(wait))
        return None

    async def _wait_until_idle(self) -> None:
        while self._busy > self._threads.timed_out:
            self._wakeup.clear()
            await self._wakeup.wait()
        await self._settler.drain()

    async def _shut_down(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(FINAL_SETTLE_S):
                while not self._inbox.empty():
                    await self._settler.retry(self._inbox.get_nowait(), 0)
                await self._settler.drain()
        self._threads.close()
        self._runs.flush()
        await asyncio.to_thread(self._heartbeat.close)

    # ── receive ──────────────────────────────────────────────────────────────

    async def _fetch(self) -> None:
        wait, channel = backoff_delays(), self._keys.realtime_channel(self.queue)
        while not self._stopping:
            try:
                async with self._store.listen(channel) as self._subscription:
                    while self._subscription.is_usable and not self._stopping:
                        await self._fetch_once(self._subscription)
                        wait = backoff_delays()
            except (StoreUnavailable, StoreRefused) as error:
                await self._pause("receive from", error, next(wait))
        self._subscription = None

    async def _fetch_once(self, subscription: Subscription) -> None:
        while self._has_no_need and not self._stopping:
            self._waits = True
            self._wakeup.clear()
            await self._wakeup.wait()
        self._waits = False
        if self._stopping:
            return
        free = self._concurrency - self._busy
        plan = message_ops.receive_batch(
            self._keys, self.queue, free, vt=self._visibility_s, journal=self._journal
        )
        result = await self._store.follow(plan)
        self._last_fetch_at = time.monotonic()
        messages = self._settler.track(result.messages)
        self._busy += len(messages)
        self.stats.received += len(messages)
        for message in messages:
            self._inbox.put_nowait(message)
        if count := await self._clock.watch(result, self._visibility_s):
            self._log.warning(
                "server clock was set back: re-hid %d messages of %r", count, self.queue
            )
        if not result.messages:
            await subscription.wait(poll_delay_s(result, POLL_EVERY_S))

    @property
    def _has_no_need(self) -> bool:
        return self._busy == self._concurrency or self._fetching_paused

    async def _pause(self, what: str, error: StoreError, for_s: float) -> None:
        shown = (what, self.queue, error, for_s)
        self._log.warning("cannot %s %r: %s; retrying in %.1f s", *shown)
        await self._sleep(for_s)

    async def _sleep(self, for_s: float) -> None:
        """Sleep, at most until `stop`."""
        self._wakeup.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                while not self._stopping:
                    await self._wakeup.wait()
                    self._wakeup.clear()

    # ── handle ───────────────────────────────────────────────────────────────

    async def _run_handlers(self) -> None:
        while True:
            message = await self._inbox.get()
            try:
                await self._runs.handle(message)
                if self._threads.timed_out:
                    self._wakeup.set()
                    await self._threads.wait_ended(message)
            except Exception:  # noqa: BLE001  (said below)
                # Not an error of the handler or of Redis, but for example of a log handler that the
                # user installed. The runner must go on; the message is received again when its
                # lease expires.
                self._log.exception("cannot handle message %r of %r", message.id, self.queue)
                self._settler.untrack((message,))
            finally:
                self._busy -= 1
                self._wakeup.set()
