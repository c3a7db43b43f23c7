"""`Dispatcher`: moves published messages to their main queues, and from there to the receivers.

All messages that are published in one tick of the event loop are stored and dispatched in one round
trip; those that must be durable in one for each level, which waits for the confirmation. Messages
that others push into a main queue are found by polling, ten times a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from tambomq.clock import backoff_delays
from tambomq.errors import (
    NotDurable,
    StoreFull,
    StoreUnavailable,
    TamboError,
)
from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.journal import push_recorded
from tambomq.gomq.ops.messages import DispatchResult
from tambomq.gomq.server.backlog_bounds import BacklogBounds
from tambomq.journal.policy import JournalPolicy
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call, Outcome
from tambomq.store.durability.aio import AsyncDurableStore, async_stores
from tambomq.store.durability.level import MEMORY, TIMEOUT_S

POLL_EVERY_S: Final = 0.1
# With many keys a poll takes long: keep Redis busy for at most a twentieth of the time.
_IDLE_SHARE: Final = 20
_LOG_EVERY_S: Final = 30.0

_log = logging.getLogger(__name__)

_Due: TypeAlias = dict[str, tuple[list[bytes], list[asyncio.Future[None]]]]
"""By key the elements to store, and the calls that wait for it."""


class Dispatcher:
    """Publishes and dispatches for one server; several may share a Redis."""

    def __init__(
        self,
        store: AsyncStore,
        journal: JournalPolicy | None = None,
        bounds: BacklogBounds | None = None,
        durable: str = MEMORY,
        durable_timeout_s: float = TIMEOUT_S,
    ) -> None:
        """*journal* says which keys have a journal. `run` starts the polling.

        *durable* is the level of what is published without one. Raises `InvalidFormat`.
        """
        self._senders = async_stores(store, durable, durable_timeout_s)
        self._store, self._journal = store, journal
        self._bounds = bounds or BacklogBounds(store, Options())
        self._due: dict[AsyncStore, _Due] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._sends = set[asyncio.Task[None]]()
        self._logged_at: dict[str, float] = {}
        self.published = 0
        """Messages stored for publishers."""
        self.copies = 0
        """Messages put into dedicated queues, once for each peer."""

    async def check(self) -> None:
        """Raise `DurabilityUnsupported` if Redis cannot confirm the default level."""
        if isinstance(self._senders.default, AsyncDurableStore):
            await self._senders.default.check()

    def publish(self, key: str, element: bytes, durable: str | None = None) -> asyncio.Future[None]:
        """Append *element* to its main queue in the next round trip; done when it is stored.

        `NotDurable`: it is stored, but the level is not confirmed. Raises `InvalidFormat`.
        """
        sender = self._sender(durable)
        loop = asyncio.get_running_loop()
        if not self._due:
            loop.call_soon(self._send)
        elements, futures = self._due.setdefault(sender, {}).setdefault(key, ([], []))
        future: asyncio.Future[None] = loop.create_future()
        elements.append(element)
        futures.append(future)
        return future

    async def publish_all(
        self, batches: Mapping[str, Sequence[bytes]], durable: str | None = None
    ) -> None:
        """Append to several main queues, or to none of them, and dispatch; see `publish`."""
        sender, overflowed = self._sender(durable), 0
        for key, refusal in (await self._bounds.refused(batches)).items():
            overflowed += len(batches[key])
            batches = await self._bounds.diverted(batches, key, refusal)
        calls: list[Call[Any]] = [self._push_all(batches), *map(self._dispatch, batches)]
        outcomes = await sender.outcomes(calls)
        for key, outcome in zip(batches, outcomes[1:], strict=True):
            self._dispatched(key, outcome)
        self._stored(outcomes[0], sum(map(len, batches.values())), overflowed)
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
        """Wait for pushes and dispatches in progress, and close the connections of durable ones."""
        while pending := {*self._busy.values(), *self._sends}:
            await asyncio.wait(pending)
        for store in self._senders.durable:
            await store.close()

    def _sender(self, durable: str | None) -> AsyncStore:
        return self._senders.default if durable is None else self._senders.at(durable)

    def _push(self, key: str, elements: Sequence[bytes]) -> Call[int]:
        if self._journal is None or self._journal.of(key) is None:
            return message_ops.push(key, elements)
        return push_recorded(self._journal, {key: elements})

    def _push_all(self, batches: Mapping[str, Sequence[bytes]]) -> Call[int]:
        if self._journal is None or not any(map(self._journal.of, batches)):
            return message_ops.push_all(batches)
        return push_recorded(self._journal, batches)

    def _send(self) -> None:
        by_sender, self._due = self._due, {}
        for sender, due in by_sender.items():
            sending = asyncio.ensure_future(self._store_and_dispatch(sender, due))
            self._sends.add(sending)
            sending.add_done_callback(self._sends.discard)

    async def _store_and_dispatch(self, sender: AsyncStore, due: _Due) -> None:
        all_futures = [futures for _, futures in due.values()]
        try:
            await self._store_due(sender, due)
        except Exception as error:  # noqa: BLE001  (raised in the calls that wait)
            # For example Redis cannot confirm the level: nothing was stored.
            for futures in all_futures:
                _settle(futures, error)

    async def _store_due(self, sender: AsyncStore, due: _Due) -> None:
        batches = {key: elements for key, (elements, _) in due.items()}
        overflowed: dict[str, int] = {}
        for key, refusal in (await self._bounds.refused(batches)).items():
            elements, futures = due.pop(key)
            try:
                diverted = await self._bounds.diverted({key: elements}, key, refusal)
            except TamboError as error:
                _settle(futures, error)
                continue
            for dead, letters in diverted.items():
                known = due.get(dead, ([], []))
                due[dead] = ([*known[0], *letters], [*known[1], *futures])
                overflowed[dead] = overflowed.get(dead, 0) + len(letters)
        calls: list[Call[Any]] = []
        for key, (elements, _) in due.items():
            calls += (self._push(key, elements), self._dispatch(key))
        outcomes = await sender.outcomes(calls)
        for index, (key, (_, futures)) in enumerate(due.items()):
            pushed, dispatched = outcomes[2 * index : 2 * index + 2]
            self._stored(pushed, len(futures), overflowed.get(key, 0))
            _settle(futures, pushed if isinstance(pushed, TamboError) else None)
            self._dispatched(key, dispatched)

    def _stored(self, outcome: Outcome, count: int, overflowed: int) -> None:
        if not isinstance(outcome, TamboError) or isinstance(outcome, NotDurable):
            self.published += count
            self._bounds.overflowed += overflowed

    def _dispatch(self, key: str) -> Call[DispatchResult]:
        return message_ops.dispatch(key, max_backlog=self._bounds.max_messages)

    def _dispatched(self, key: str, outcome: DispatchResult | TamboError) -> None:
        """Count the result; if messages are left, dispatch on in the background."""
        if isinstance(outcome, NotDurable):
            # The publisher learns it from its own call.
            outcome = cast("DispatchResult", outcome.result)
        if isinstance(outcome, TamboError):
            # The messages stay in their main queue, and `run` tries again.
            self._log_error(key, outcome)
            if isinstance(outcome, StoreFull) and key not in self._busy:
                self._in_background(key, self._dispatch_when_full(key))
            return
        self.copies += outcome.moved * outcome.peers
        self._bounds.note(key, outcome.left)
        if outcome.left and outcome.peers and key not in self._busy:
            self._in_background(key, self._drain(key))

    def _in_background(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        self._busy[key] = task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._busy.pop(key))

    async def _dispatch_when_full(self, key: str) -> None:
        """Give the receivers some messages, so that they free memory."""
        try:
            done = await self._store.run(message_ops.dispatch_when_full(key))
            if done.is_unsettled:
                await self._store.follow(leave_ops.settle(key))
            self.copies += done.moved * done.peers
        except TamboError as error:
            self._log_error(key, error)

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
            _log.warning(
                "messages are not dispatched yet, and stay in their main queues: %s", error
            )
        else:
            _log.warning(
                "messages of key %r are not dispatched yet, and stay in its main queue: %s",
                key,
                error,
                extra={"key": key},
            )


def _settle(futures: Iterable[asyncio.Future[None]], error: Exception | None) -> None:
    """Complete the publish calls, with *error* if their messages are not stored."""
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
