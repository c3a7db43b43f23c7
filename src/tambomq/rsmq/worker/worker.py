"""Runs a handler for each message of an RSMQ queue.

A message is deleted when its handler returns. When the handler raises, the
message waits and is tried again; after `max_receives` it goes to the
dead-letter queue. While the handler runs, the message stays hidden from others.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from tambomq.clock import pauses
from tambomq.errors import HandlersStuck, Reject, StoreRefused, StoreUnavailable
from tambomq.failures import FailureLog, headline, text_of, traceback_of, type_of, with_traceback
from tambomq.journal.recording import BOUNDS, Bounds, bounds_of
from tambomq.rsmq import ops, queue_ops
from tambomq.rsmq.backoff import Backoff
from tambomq.rsmq.heartbeat import RsmqLease
from tambomq.rsmq.keys import DEAD_SUFFIX, NAMESPACE, check_dead_queue, check_queue
from tambomq.rsmq.longpoll import LOOK_EVERY_S, nap_s
from tambomq.rsmq.model import DEFAULT_VT, Message, check_count, check_seconds
from tambomq.rsmq.recorded import recording_keys
from tambomq.rsmq.server_clock import ServerClock
from tambomq.rsmq.settling import Settler, WorkerStats
from tambomq.rsmq.signalled import run_until_signalled
from tambomq.rsmq.threads import HandlerThreads, is_async
from tambomq.store.aio import AsyncStore
from tambomq.store.connect import PATIENCE_S, URL, Credentials, Tls
from tambomq.store.ears import Hearing
from tambomq.store.heartbeat import heartbeat

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Message], Any]
"""A coroutine function, or a plain one, which runs in a thread."""

DEFAULT_BACKOFF = Backoff()

# How long an ending worker tries to tell the server what became of its messages.
LAST_WORDS_S = 1.0


class RsmqWorker:
    """Takes messages off *queue* and runs *handler* for each, *concurrency* at a time.

    *vt*: seconds a message is hidden at a time; without one, the queue's own. It
    is renewed while the handler runs, by a ``"thread"``, or by a ``"process"`` if
    handlers hold the interpreter's lock for longer than *vt*; ``None`` renews nothing.

    *max_receives*: after so many the message goes to *dead_queue* (``<queue>-dead``);
    ``None`` tries for ever. *timeout_s*: a handler that takes longer has failed; a plain
    function keeps its thread until it ends, and `run` raises `HandlersStuck` if none is left.
    *grace_s*: how long `stop` waits for handlers before it gives their messages back.
    *journal*: what becomes of messages is recorded in the queue's journal. `run` waits for a
    server that goes away as long as it takes, *patience_s* seconds at a time.
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
        journal: bool | Bounds = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Check the options; nothing is connected before `run`."""
        self.queue = check_queue(queue)
        self.dead_queue = check_dead_queue(dead_queue or queue + DEAD_SUFFIX, of=queue)
        self._keys = recording_keys(ns, (queue,) if journal else (), bounds_of(journal) or BOUNDS)
        self._handler, self._realtime = handler, realtime
        self._is_async, self._own_store = is_async(handler), not isinstance(url, AsyncStore)
        if not isinstance(url, AsyncStore):
            url = AsyncStore(url, tls=tls, credentials=credentials, patience_s=patience_s)
        self._store = url
        self._concurrency = check_count(concurrency)
        self._vt = None if vt is None else check_seconds("vt", vt)
        self._heartbeat = heartbeat
        self._max_receives = None if max_receives is None else check_count(max_receives)
        self._backoff, self._timeout_s, self._grace_s = backoff, timeout_s, grace_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notices: Hearing | None = None
        self._stopping = False
        self.stats = WorkerStats()
        """What it has done so far."""

    # ── life ─────────────────────────────────────────────────────────────────

    def stop(self) -> None:
        """Let `run` end: take nothing more, finish what has begun. From any thread."""
        self._stopping = True
        if self._loop is not None:
            # The loop may have closed meanwhile; then there is nothing to stop.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def run_forever(self) -> None:
        """Run until SIGINT or SIGTERM; a second one gives running messages back at once."""
        run_until_signalled(self.run, self.stop, lambda: self._stopping)

    async def run(self) -> None:
        """Work until `stop`; raise `QueueNotFound` if there is no queue, or no longer.

        Raises `HandlersStuck` when *timeout_s* is over for all threads and none comes back.

        Survives any absence of the server. Cancelled, it gives running messages
        back and ends at once.
        """
        try:
            await self._work()
        finally:
            if self._own_store:
                await self._store.close()

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._busy, self._room = 0, asyncio.Event()
        self._clock = ServerClock(self._store, self._keys, self.queue)
        found = await self._store.run(queue_ops.attributes(self._keys, self.queue))
        self._hide_s = self._vt or found.vt or DEFAULT_VT
        lease = RsmqLease(self._store.endpoint, self._keys.ns, self.queue, self._hide_s)
        self._beat = heartbeat(self._heartbeat, lease)
        self._settler = Settler(self._store, self._keys, self.queue, self._beat, self.stats)
        self._threads = HandlerThreads(self._handler, self._concurrency, self._timeout_s)
        self._failures = FailureLog(log, "message", self.queue, self._loop.call_later)
        fetching = asyncio.create_task(self._fetch())
        runners = [asyncio.create_task(self._run_handlers()) for _ in range(self._concurrency)]
        try:
            stuck = self._threads.stuck
            await asyncio.wait((fetching, stuck), return_when=asyncio.FIRST_COMPLETED)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace_s):
                    await self._idle()
        finally:
            await self._end([fetching, *runners])
        if stuck.done():
            error = HandlersStuck(self.queue, stuck.result())
            log.error("%s", error)
            raise error
        fetching.result()

    def _wake(self) -> None:
        self._room.set()
        if self._notices is not None:
            self._notices.rouse()

    async def _idle(self) -> None:
        while self._busy > self._threads.timed_out:
            self._room.clear()
            await self._room.wait()
        await self._settler.drain()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                while not self._inbox.empty():
                    await self._settler.retry(self._inbox.get_nowait(), 0)
                await self._settler.drain()
        self._threads.close()
        self._failures.flush()
        await asyncio.to_thread(self._beat.close)

    # ── receive ──────────────────────────────────────────────────────────────

    async def _fetch(self) -> None:
        wait = pauses()
        while not self._stopping:
            try:
                async with self._store.listen(self._keys.notices(self.queue)) as self._notices:
                    while self._notices.sound and not self._stopping:
                        await self._fetch_once(self._notices)
                        wait = pauses()
            except (StoreUnavailable, StoreRefused) as error:
                pause_s = next(wait)
                log.warning("%r: %s; next try in %.1f s", self.queue, error, pause_s)
                await self._sleep(pause_s)
        self._notices = None

    async def _fetch_once(self, notices: Hearing) -> None:
        while self._busy == self._concurrency and not self._stopping:
            self._room.clear()
            await self._room.wait()
        if self._stopping:
            return
        free = self._concurrency - self._busy
        plan = ops.receive_batch(self._keys, self.queue, free, vt=self._hide_s)
        haul = await self._store.follow(plan)
        messages = self._settler.take(haul.messages)
        self._busy += len(messages)
        self.stats.received += len(messages)
        for message in messages:
            self._inbox.put_nowait(message)
        if late := await self._clock.watch(haul, self._hide_s):
            log.warning("clock set back: %d messages of %r hidden anew", late, self.queue)
        if not haul.messages:
            await notices.wait(nap_s(haul, LOOK_EVERY_S))

    async def _sleep(self, for_s: float) -> None:
        """Sleep, unless told to stop."""
        self._room.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                while not self._stopping:
                    await self._room.wait()
                    self._room.clear()

    # ── handle ───────────────────────────────────────────────────────────────

    async def _run_handlers(self) -> None:
        while True:
            message = await self._inbox.get()
            try:
                await self._handle(message)
                if self._threads.timed_out:
                    self._room.set()
                    await self._threads.ended(message)
            finally:
                self._busy -= 1
                self._room.set()

    async def _handle(self, message: Message) -> None:
        if self._max_receives is not None and message.rc > self._max_receives:
            await self._bury(message, f"received {message.rc - 1} times and never finished")
            return
        try:
            await self._call(message)
        except Reject as verdict:
            await self._bury(message, str(verdict))
        except CancelledError:
            # Ours only if this very task is being cancelled; a handler may raise it by itself.
            if (task := asyncio.current_task()) is None or not task.cancelling():
                await self._failed(message, "the handler was cancelled")
                return
            await self._give_back(message)
            raise
        except Exception as error:  # noqa: BLE001  (whatever a handler raises)
            self._failures.failed(message.id, message.rc, error)
            why = headline(type_of(error), text_of(error))
            await self._failed(message, why, error)
        else:
            self._settler.done(message)

    async def _call(self, message: Message) -> None:
        if self._is_async:
            async with asyncio.timeout(self._timeout_s):
                await self._handler(message)
        else:
            await self._threads.call(message)

    async def _failed(self, message: Message, what: str, error: Exception | None = None) -> None:
        self.stats.failed += 1
        if self._max_receives is not None and message.rc >= self._max_receives:
            await self._bury(message, what, "" if error is None else traceback_of(error))
        else:
            await self._settler.retry(message, self._backoff.wait_s(message.rc))
            # Look again: the queue now says when the message is due.
            self._wake()

    async def _bury(self, message: Message, why: str, trace: str = "") -> None:
        log.error("message %r goes from %r to %r: %r", message.id, self.queue, self.dead_queue, why)
        why = with_traceback(why, trace)
        await self._settler.bury(message, self.dead_queue, why, realtime=self._realtime)

    async def _give_back(self, message: Message) -> None:
        """Let others have *message* at once; if they cannot be told, when its time is up."""
        if not self._is_async:
            # Its thread cannot be cancelled and still runs: its time is for others to wait.
            self._settler.let_go((message,))
            return
        with suppress(TimeoutError, CancelledError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._settler.retry(message, 0)
