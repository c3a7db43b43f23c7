"""Runs the handler of an RSMQ worker, and settles each message by how the run ended."""

from __future__ import annotations

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from tambomq.clock import now_ms
from tambomq.errors import Reject, RetryIn
from tambomq.failures import FailureLog, headline, text_of, traceback_of, type_of, with_traceback
from tambomq.log import with_fields
from tambomq.rsmq.model import Message
from tambomq.rsmq.worker.backoff import Backoff
from tambomq.rsmq.worker.settler import Settler
from tambomq.rsmq.worker.threads import HandlerThreads, is_async
from tambomq.runtime.observer import GuardedObserver, RunEnd, begin_run

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Message], Any]
"""A coroutine function, or a plain one, which runs in a thread."""

# How long a worker that shuts down tries to settle its messages.
FINAL_SETTLE_S = 1.0


class MessageRunOptions(msgspec.Struct, frozen=True):
    """How often and for how long a message may run, its backoff, and its dead-letter queue."""

    max_receives: int | None
    dead_queue: str
    backoff: Backoff
    timeout_s: float | None
    realtime: bool


class MessageRuns:
    """Runs the handler of one worker."""

    def __init__(
        self,
        queue: str,
        handler: Handler,
        options: MessageRunOptions,
        settler: Settler,
        threads: HandlerThreads,
        observer: GuardedObserver | None,
        wake: Callable[[], None],
    ) -> None:
        """Call *wake* after a retry was scheduled, so that the worker learns when it is due."""
        self._queue, self._handler, self._options = queue, handler, options
        self._settler, self._threads, self._observer = settler, threads, observer
        self._wake, self._is_async = wake, is_async(handler)
        self._log = with_fields(log, queue=queue)
        call_later = asyncio.get_running_loop().call_later
        self._failures = FailureLog(self._log, "message", queue, call_later)

    async def handle(self, message: Message) -> None:
        """Call the handler and settle *message*."""
        max_receives = self._options.max_receives
        if max_receives is not None and message.rc > max_receives:
            await self._bury(message, f"received {message.rc - 1} times and never finished")
            return
        waited_ms = max(0, now_ms() - message.sent) if message.rc == 1 else 0
        end = begin_run(self._observer, self._queue, message.id, message.rc, waited_ms)
        try:
            await self._call(message)
        except Reject as rejection:
            end("dead", headline(type_of(rejection), text_of(rejection)))
            await self._bury(message, text_of(rejection))
        except CancelledError:
            # A cancellation of this task, or an error that the handler raised by itself?
            if (task := asyncio.current_task()) is None or not task.cancelling():
                await self._failed(message, "the handler was cancelled", end)
                return
            end("returned", "")
            await self._release(message)
            raise
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  (whatever a handler raises, also sys.exit)
            self._failures.failed(message.id, message.rc, error)
            await self._failed(message, headline(type_of(error), text_of(error)), end, error)
        else:
            end("completed", "")
            self._settler.done(message)

    def flush(self) -> None:
        """Log the failures that were only counted so far."""
        self._failures.flush()

    async def _call(self, message: Message) -> None:
        if self._is_async:
            async with asyncio.timeout(self._options.timeout_s):
                await self._handler(message)
        else:
            await self._threads.call(message)

    async def _failed(
        self, message: Message, what: str, end: RunEnd, error: BaseException | None = None
    ) -> None:
        options = self._options
        self._settler.stats.failed += 1
        if options.max_receives is not None and message.rc >= options.max_receives:
            end("dead", what)
            await self._bury(message, what, "" if error is None else traceback_of(error))
            return
        end("retried", what)
        if isinstance(error, RetryIn):
            wait_s: float = error.seconds
        else:
            wait_s = options.backoff.wait_s(message.rc)
        await self._settler.retry(message, wait_s)
        # Receive again: the result says when the message is due.
        self._wake()

    async def _bury(self, message: Message, why: str, trace: str = "") -> None:
        dead_queue, fields = self._options.dead_queue, {"message_id": message.id}
        shown = (message.id, self._queue, dead_queue, why)
        self._log.error(
            "message %r of %r is moved to the dead-letter queue %r: %r", *shown, extra=fields
        )
        why = with_traceback(why, trace)
        await self._settler.bury(message, dead_queue, why, realtime=self._options.realtime)

    async def _release(self, message: Message) -> None:
        """Make *message* visible at once; if that fails, it is when its lease expires."""
        if not self._is_async:
            # Its thread cannot be cancelled: keep the message hidden until its lease expires.
            self._settler.untrack((message,))
            return
        with suppress(TimeoutError, CancelledError):
            async with asyncio.timeout(FINAL_SETTLE_S):
                await self._settler.retry(message, 0)
