"""Both leaders of one ChasquiMQ queue, as tasks that can be seen to go on."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tambomq.chasqui.lead_ops import Office
from tambomq.chasqui.leader import Leader
from tambomq.chasqui.promoter import Promoter
from tambomq.chasqui.scheduler import Scheduler
from tambomq.errors import DoorFailed
from tambomq.store.aio import AsyncStore

# A turn ends with an error when the store has been away for its patience of 10 s. Whoever takes
# longer than that hangs.
STUCK_AFTER_S: Final = 15.0


class _Timed(Leader):
    """Remembers when it had its turn."""

    turned_at = 0.0

    async def turn(self) -> float:
        try:
            return await super().turn()
        finally:
            # Also after an error: a queue that somebody damaged is no reason to call us dead.
            self.turned_at = time.monotonic()


class _Promoter(_Timed, Promoter):
    pass


class _Scheduler(_Timed, Scheduler):
    pass


class Led:
    """A queue that is led, or would be if nobody else did; *tick_ms* is the promoter's."""

    def __init__(self, store: AsyncStore, office: Office, tick_ms: int) -> None:
        self._queue, self._tick_s = office.keys.queue, tick_ms / 1000
        self._leaders = (_Promoter(store, office, tick_ms), _Scheduler(store, office))
        self.tasks = []
        for leader in self._leaders:
            leader.turned_at = time.monotonic()
            self.tasks.append(asyncio.ensure_future(leader.run()))

    @property
    def clock_ahead_s(self) -> float:
        """By how much our clock is ahead of Redis's, at least; negative if it is behind."""
        return max((leader.clock_ahead_s for leader in self._leaders), key=abs)

    def close(self) -> None:
        """Let the tasks end, and others lead."""
        for leader in self._leaders:
            leader.close()

    def check(self) -> None:
        """Raise `DoorFailed` if a leader has ended or hangs, or the clocks keep it from leading."""
        for leader, task in zip(self._leaders, self.tasks, strict=True):
            silent_s = time.monotonic() - leader.turned_at
            if task.done() or silent_s > STUCK_AFTER_S + self._tick_s:
                why = "ended" if task.done() else f"has done nothing for {silent_s:.0f} s"
                raise DoorFailed("chasqui", f"the {leader.duty} of queue {self._queue!r} {why}")
            if leader.refusal:
                about = f"the {leader.duty} of queue {self._queue!r}"
                raise DoorFailed("chasqui", f"{about}: {leader.refusal}")
