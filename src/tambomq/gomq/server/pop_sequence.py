"""`PopSequence`: pops messages for clients that do not acknowledge, one call of a peer at a time.

What was popped for a call that has ended is queued again before the next call of that peer pops:
otherwise this would get newer messages first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from tambomq.errors import TamboError
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.messages import ObserveResult
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

_log = logging.getLogger(__name__)


class PopSequence:
    """The pops of one server. Those of a peer that calls several servers are not in sequence."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        # Only those in use: there may be any number of peers.
        self._turns = WeakValueDictionary[tuple[str, str], asyncio.Lock]()
        self._background = set[asyncio.Task[None]]()

    async def pop(self, call: Call[ObserveResult], consumer: str, peer: str) -> ObserveResult:
        """Run *call*, which pops messages; if it is cancelled meanwhile, queue them again."""
        turn = self._turn(consumer, peer)
        await turn.acquire()
        pop = asyncio.ensure_future(self._store.run(call))
        try:
            found = await asyncio.shield(pop)
        except asyncio.CancelledError:
            self._in_background(self._undo(turn, pop, consumer, peer))
            raise
        except BaseException:
            turn.release()
            raise
        turn.release()
        return found

    def give_back(self, consumer: str, peer: str, found: ObserveResult) -> None:
        """Queue popped messages again, which did not reach *peer*."""
        if found.messages:
            self._in_background(self._give_back(consumer, peer, found))

    async def finish(self) -> None:
        """Wait until all that is to be queued again is."""
        while self._background:
            await asyncio.wait(self._background)

    def _turn(self, consumer: str, peer: str) -> asyncio.Lock:
        return self._turns.setdefault((consumer, peer), asyncio.Lock())

    async def _give_back(self, consumer: str, peer: str, found: ObserveResult) -> None:
        async with self._turn(consumer, peer):
            await self._return(consumer, peer, found)

    async def _undo(
        self, turn: asyncio.Lock, pop: asyncio.Future[ObserveResult], consumer: str, peer: str
    ) -> None:
        try:
            # If it failed, nothing was popped.
            with suppress(TamboError):
                await self._return(consumer, peer, await pop)
        finally:
            turn.release()

    async def _return(self, consumer: str, peer: str, found: ObserveResult) -> None:
        if not found.messages:
            return
        count = sum(len(messages) for _, messages in found.messages)
        try:
            count -= await self._store.run(message_ops.give_back(consumer, peer, found))
            why = "it is no longer subscribed"
        except TamboError as error:
            why = str(error)
        if count:
            shown, fields = (count, peer, consumer, why), {"consumer": consumer, "peer": peer}
            _log.warning("%d messages for %r of %r are lost: %s", *shown, extra=fields)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
