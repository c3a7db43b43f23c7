"""Takes messages to their main queues, and from there to everyone who is to receive them.

All that is published in one turn of the loop goes to Redis in one round trip, together with the
dispatch of it. What others push into a main queue is found by looking, ten times a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tambomq.clock import pauses
from tambomq.errors import LimitReached, StoreUnavailable, TamboError
from tambomq.gomq import leave_ops, ops
from tambomq.gomq.model import MAX_BACKLOG
from tambomq.gomq.ops import Dispatched
from tambomq.gomq.recorded import push_recorded
from tambomq.journal.recording import Recording
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

LOOK_EVERY_S: Final = 0.1
# With many keys a look takes its time: Redis is ours for no more than a twentieth of it.
_REST: Final = 20
_TELL_EVERY_S: Final = 30.0

_log = logging.getLogger(__name__)


class Dispatcher:
    """Publishes and dispatches for one server; others may do the same on the same Redis."""

    def __init__(
        self,
        store: AsyncStore,
        recording: Recording | None = None,
        max_backlog: int = MAX_BACKLOG,
    ) -> None:
        """Nothing is looked for before `run`. *recording* says which keys have a journal."""
        self._store, self._recording, self._max_backlog = store, recording, max_backlog
        self._full = set[str]()
        self._due: dict[str, tuple[list[bytes], list[asyncio.Future[None]]]] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._trips = set[asyncio.Task[None]]()
        self._told: dict[str, float] = {}
        self.copies = 0
        """How often a message was put into a dedicated queue."""

    def publish(self, key: str, element: bytes) -> asyncio.Future[None]:
        """Append *element* to its main queue with the next trip; done when Redis has it."""
        loop = asyncio.get_running_loop()
        if not self._due:
            loop.call_soon(self._send)
        elements, waiting = self._due.setdefault(key, ([], []))
        future: asyncio.Future[None] = loop.create_future()
        elements.append(element)
        waiting.append(future)
        return future

    async def publish_all(self, batches: Mapping[str, Sequence[bytes]]) -> None:
        """Append to several main queues, or to none, and dispatch."""
        for refusal in (await self._refused(batches)).values():
            raise refusal
        calls: list[Call[Any]] = [self._push_all(batches), *map(self._dispatch, batches)]
        outcomes = await self._store.outcomes(calls)
        for key, outcome in zip(batches, outcomes[1:], strict=True):
            self._dispatched(key, outcome)
        if isinstance(outcomes[0], TamboError):
            raise outcomes[0]

    async def dispatch(self, *keys: str) -> None:
        """Empty the main queues of *keys*, as far as somebody is there to receive."""
        outcomes = await self._store.outcomes([self._dispatch(key) for key in keys])
        for key, outcome in zip(keys, outcomes, strict=True):
            self._dispatched(key, outcome)
        if busy := [self._busy[key] for key in keys if key in self._busy]:
            await asyncio.wait(busy)

    async def run(self) -> None:
        """Look for what others have pushed, for ever. Survives any absence of the server."""
        wait = pauses(longest_s=1.0)
        while True:
            began = time.monotonic()
            try:
                await self._look()
                wait = pauses(longest_s=1.0)
                pause_s = max(LOOK_EVERY_S, _REST * (time.monotonic() - began))
            except TamboError as error:
                self._tell("", error)
                pause_s = next(wait)
            await asyncio.sleep(pause_s)

    async def _look(self) -> None:
        cursor = b"0"
        while True:
            cursor, keys = await self._store.run(ops.pending(cursor))
            if keys:
                await self.dispatch(*keys)
            if cursor == b"0":
                return

    async def stop(self) -> None:
        """Wait for what is under way."""
        while under_way := {*self._busy.values(), *self._trips}:
            await asyncio.wait(under_way)

    def _push(self, key: str, elements: Sequence[bytes]) -> Call[int]:
        if self._recording is None or self._recording.of(key) is None:
            return ops.push(key, elements)
        return push_recorded(self._recording, {key: elements})

    def _push_all(self, batches: Mapping[str, Sequence[bytes]]) -> Call[int]:
        if self._recording is None or not any(map(self._recording.of, batches)):
            return ops.push_all(batches)
        return push_recorded(self._recording, batches)

    def _send(self) -> None:
        due, self._due = self._due, {}
        trip = asyncio.ensure_future(self._trip(due))
        self._trips.add(trip)
        trip.add_done_callback(self._trips.discard)

    async def _trip(self, due: dict[str, tuple[list[bytes], list[asyncio.Future[None]]]]) -> None:
        for key, refusal in (await self._refused(due)).items():
            _settle(due.pop(key)[1], refusal)
        calls: list[Call[Any]] = []
        for key, (elements, _) in due.items():
            calls += (self._push(key, elements), self._dispatch(key))
        outcomes = await self._store.outcomes(calls)
        for place, (key, (_, waiting)) in enumerate(due.items()):
            pushed, dispatched = outcomes[2 * place : 2 * place + 2]
            _settle(waiting, pushed if isinstance(pushed, TamboError) else None)
            self._dispatched(key, dispatched)

    async def _refused(self, keys: Iterable[str]) -> dict[str, TamboError]:
        """Return those of *keys* whose main queues are full, each with what its callers get.

        Only a key that was seen full is looked at again, so the others cost nothing.
        """
        if not self._full or not (doubtful := sorted(self._full.intersection(keys))):
            return {}
        lengths = await self._store.outcomes([ops.backlog(key) for key in doubtful])
        refused: dict[str, TamboError] = {}
        for key, length in zip(doubtful, lengths, strict=True):
            if isinstance(length, TamboError):
                refused[key] = length
            elif length >= self._max_backlog:
                refused[key] = LimitReached(f"key {key!r}", self._max_backlog, "waiting messages")
            else:
                self._full.discard(key)
        return refused

    def _dispatch(self, key: str) -> Call[Dispatched]:
        return ops.dispatch(key, max_backlog=self._max_backlog)

    def _dispatched(self, key: str, outcome: Dispatched | TamboError) -> None:
        """Note what was done, and see to the rest."""
        if isinstance(outcome, TamboError):
            # It stays in its main queue, and `run` tries again.
            self._tell(key, outcome)
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
                    # What somebody who left was owed is older, and comes first.
                    await self._store.follow(leave_ops.settle(key))
                self.copies += done.moved * done.peers
                left = done.left if done.peers else 0
        except TamboError as error:
            self._tell(key, error)

    def _tell(self, key: str, error: TamboError) -> None:
        """Log *error*, at most once in a while for each key."""
        now = time.monotonic()
        if now - self._told.get(key, -_TELL_EVERY_S) < _TELL_EVERY_S:
            return
        self._told = {k: at for k, at in self._told.items() if now - at < _TELL_EVERY_S}
        self._told[key] = now
        if isinstance(error, StoreUnavailable):
            _log.warning("messages wait in their main queues: %s", error)
        else:
            _log.warning("key %r waits in its main queue: %s", key, error)


def _settle(waiting: Iterable[asyncio.Future[None]], error: TamboError | None) -> None:
    """Tell callers that their messages are stored, or why not."""
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
