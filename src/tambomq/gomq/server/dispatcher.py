"""`Dispatcher`: moves published messages to their main queues, and from there to the receivers.

All messages that are published in one tick of the event loop are stored and dispatched in one round
trip. Messages that others push into a main queue are found by polling, ten times a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tambomq.clock import backoff_delays
from tambomq.errors import LimitReached, StoreUnavailable, TamboError
from tambomq.gomq.model import MAX_BACKLOG
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.journal import push_recorded
from tambomq.gomq.ops.messages import DispatchResult
from tambomq.journal.policy import JournalPolicy
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

POLL_EVERY_S: Final = 0.1
# With many keys a poll takes long: keep Redis busy for at most a twentieth of the time.
_IDLE_SHARE: Final = 20
_LOG_EVERY_S: Final = 30.0

_log = logging.getLogger(__name__)


class Dispatcher:
    """Publishes and dispatches for one server; several may share a Redis."""

    def __init__(
        self,
        store: AsyncStore,
        journal: JournalPolicy | None = None,
        max_backlog: int = MAX_BACKLOG,
    ) -> None:
        """*journal* says which keys have a journal. `run` starts the polling."""
        self._store, self._journal, self._max_backlog = store, journal, max_backlog
        self._full = set[str]()
        self._due: dict[str, tuple[list[bytes], list[asyncio.Future[None]]]] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._sends = set[asyncio.Task[None]]()
        self._logged_at: dict[str, float] = {}
        self.copies = 0
        """Messages put into dedicated queues, once for each peer."""

    def publish(self, key: str, element: bytes) -> asyncio.Future[None]:
        """Append *element* to its main queue in the next round trip; done when it is stored."""
        loop = asyncio.get_running_loop()
        if not self._due:
            loop.call_soon(self._send)
        elements, futures = self._due.setdefault(key, ([], []))
        future: asyncio.Future[None] = loop.create_future()
        elements.append(element)
        futures.append(future)
        return future

    async def publish_all(self, batches: Mapping[str, Sequence[bytes]]) -> None:
        """Append to several main queues, or to none of them, and dispatch."""
        for refusal in (await self._refused(batches)).values():
            raise refusal
        calls: list[Call[Any]] = [self._push_all(batches), *map(self._dispatch, batches)]
        outcomes = await self._store.outcomes(calls)
        for key, outcome in zip(batches, outcomes[1:], strict=True):
            self._dispatched(key, outcome)
        if isinstance(outcomes[0], TamboError):
            raise outcomes[0]

    async def dispatch(self, *keys: str) -> None:
        """Dispatch the main queues of those *keys* that have receivers, until they are empty."""
        outcomes = await self._store.outcomes([self._dispatch(key) for key in keys])
        for key, outcome in zip(keys, outcomes, strict=True):
            self._dispatched(key, outcome)
        if busy := [self._busy[key] for key in keys if key in self._busy]:
            await asyncio.wait(busy)

    async def run(self) -> None:
        """Dispatch messages that others have pushed, for ever. Retries if Redis is unavailable."""
        wait = backoff_delays(longest_s=1.0)
        while True:
            began = time.monotonic()
            try:
                await self._poll()
                wait = backoff_delays(longest_s=1.0)
                pause_s = max(POLL_EVERY_S, _IDLE_SHARE * (time.monotonic() - began))
            except TamboError as error:
                self._log_error("", error)
                pause_s = next(wait)
            await asyncio.sleep(pause_s)

    async def _poll(self) -> None:
        cursor = b"0"
        while True:
            cursor, keys = await self._store.run(message_ops.pending(cursor))
            if keys:
                await self.dispatch(*keys)
            if cursor == b"0":
                return

    async def stop(self) -> None:
        """Wait for stores and dispatches in progress."""
        while pending := {*self._busy.values(), *self._sends}:
            await asyncio.wait(pending)

    def _push(self, key: str, elements: Sequence[bytes]) -> Call[int]:
        if self._journal is None or self._journal.of(key) is None:
            return message_ops.push(key, elements)
        return push_recorded(self._journal, {key: elements})

    def _push_all(self, batches: Mapping[str, Sequence[bytes]]) -> Call[int]:
        if self._journal is None or not any(map(self._journal.of, batches)):
            return message_ops.push_all(batches)
        return push_recorded(self._journal, batches)

    def _send(self) -> None:
        due, self._due = self._due, {}
        sending = asyncio.ensure_future(self._store_and_dispatch(due))
        self._sends.add(sending)
        sending.add_done_callback(self._sends.discard)

    async def _store_and_dispatch(
        self, due: dict[str, tuple[list[bytes], list[asyncio.Future[None]]]]
    ) -> None:
        for key, refusal in (await self._refused(due)).items():
            _settle(due.pop(key)[1], refusal)
        calls: list[Call[Any]] = []
        for key, (elements, _) in due.items():
            calls += (self._push(key, elements), self._dispatch(key))
        outcomes = await self._store.outcomes(calls)
        for index, (key, (_, futures)) in enumerate(due.items()):
            pushed, dispatched = outcomes[2 * index : 2 * index + 2]
            _settle(futures, pushed if isinstance(pushed, TamboError) else None)
            self._dispatched(key, dispatched)

    async def _refused(self, keys: Iterable[str]) -> dict[str, TamboError]:
        """Return the error for each of *keys* whose main queue is full.

        Only keys that were full at their last dispatch are checked; the others cost nothing.
        """
        if not self._full or not (suspects := sorted(self._full.intersection(keys))):
            return {}
        lengths = await self._store.outcomes([message_ops.backlog(key) for key in suspects])
        refused: dict[str, TamboError] = {}
        for key, length in zip(suspects, lengths, strict=True):
            if isinstance(length, TamboError):
                refused[key] = length
            elif length >= self._max_backlog:
                refused[key] = LimitReached(f"key {key!r}", self._max_backlog, "waiting messages")
            else:
                self._full.discard(key)
        return refused

    def _dispatch(self, key: str) -> Call[DispatchResult]:
        return message_ops.dispatch(key, max_backlog=self._max_backlog)

    def _dispatched(self, key: str, outcome: DispatchResult | TamboError) -> None:
        """Count the result; if messages are left, dispatch on in the background."""
        if isinstance(outcome, TamboError):
            # The messages stay in their main queue, and `run` tries again.
            self._log_error(key, outcome)
            return
        self.copies += outcome.moved * outcome.peers
        if outcome.left >= self._max_backlog:
            self._full.add(key)
        if outcome.left and outcome.peers and key not in self._busy:
            self._busy[key] = task = asyncio.ensure_future(self._drain(key))
            task.add_done_callback(lambda _: self._busy.pop(key))

    async def _drain(self, key: str) -> None:
        try:
            left = 1
            while left:
                done = await self._store.run(self._dispatch(key))
                if done.is_unsettled:
                    # Messages of departed peers are older: put them back first.
                    await self._store.follow(leave_ops.settle(key))
                self.copies += done.moved * done.peers
                left = done.left if done.peers else 0
        except TamboError as error:
            self._log_error(key, error)

    def _log_error(self, key: str, error: TamboError) -> None:
        """Log *error*, at most once in `_LOG_EVERY_S` for each key."""
        now = time.monotonic()
        if now - self._logged_at.get(key, -_LOG_EVERY_S) < _LOG_EVERY_S:
            return
        self._logged_at = {k: at for k, at in self._logged_at.items() if now - at < _LOG_EVERY_S}
        self._logged_at[key] = now
        if isinstance(error, StoreUnavailable):
            _log.warning("messages wait in their main queues: %s", error)
        else:
            _log.warning("key %r waits in its main queue: %s", key, error, extra={"key": key})


def _settle(futures: Iterable[asyncio.Future[None]], error: TamboError | None) -> None:
    """Complete the publish calls, with *error* if their messages are not stored."""
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
