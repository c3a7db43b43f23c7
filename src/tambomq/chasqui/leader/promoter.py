"""The promoter of a queue: moves due jobs from the delayed set to the stream.

It also keeps delayed jobs in a format that every participant of the queue can read.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from tambomq.chasqui.leader.leader import STANDBY_POLL_S, Leader
from tambomq.chasqui.ops import convert as convert_ops
from tambomq.chasqui.ops import leader as leader_ops
from tambomq.chasqui.ops.leader import LeaderConfig, Promotion
from tambomq.clock import Deadline
from tambomq.errors import StoreError
from tambomq.store.aio import AsyncStore

if TYPE_CHECKING:
    from typing import Any

    from tambomq.store.call import Call

log = logging.getLogger(__name__)

TICK_MS = 100
"""Longest sleep between turns: a job that is added meanwhile is noticed after it."""
PRUNE_EVERY_S = 60.0
"""Interval of the search for consumers of killed workers."""
SIGNS_EVERY_S = 1.0
"""Interval of the check for a released engine, which would lead when this promoter leaves."""


class Promoter(Leader):
    """Leads the delayed jobs of one queue, or stands by."""

    role = "promoter"

    def __init__(self, store: AsyncStore, config: LeaderConfig, tick_ms: int = TICK_MS) -> None:
        """Prepare only; `run` starts the work."""
        super().__init__(store, config, config.keys.promoter_lock)
        self._tick_s = tick_ms / 1000
        self._moved: list[str] = []
        self._signs_at, self._prune_at = Deadline(0), Deadline(0)

    async def turn(self) -> float:
        """Promote a batch; return the seconds to wait before the next."""
        moved, self._moved = self._moved, []
        calls: list[Call[Any]] = [leader_ops.promote(self._config)]
        if moved:
            calls.append(leader_ops.forget_indexes(self._config.keys, moved))
        promotion: Promotion | None = (await self._store.run_all(calls))[0]
        self._set_leading(promotion is not None)
        if promotion is None:
            return STANDBY_POLL_S
        if self._signs_at.passed:
            self._signs_at = Deadline(SIGNS_EVERY_S)
            await self._convert()
        if self._prune_at.passed:
            self._prune_at = Deadline(PRUNE_EVERY_S)
            await self._store.run(leader_ops.prune_consumers(self._config.keys))
        self._moved = [id for id in promotion.ids if id]
        if self._moved:
            # More may be due, and the indexes of the moved jobs are still to delete.
            return 0
        is_full = promotion.wait_ms == 0 and not promotion.ids and not promotion.buried
        if promotion.wait_ms is None or is_full:
            return self._tick_s
        return min(self._tick_s, max(promotion.wait_ms, 1) / 1000)

    async def resign(self) -> None:
        """Release the lock, after converting jobs that a successor could not read."""
        with suppress(StoreError):
            await self._convert()
        await super().resign()

    async def _convert(self) -> None:
        """If a released engine shares the queue, rewrite delayed jobs that it could not read."""
        keys = self._config.keys
        if await self._store.run(convert_ops.signs(keys)) == convert_ops.MUST_CONVERT:
            count = await self._store.follow(convert_ops.convert(keys))
            self._log.info(
                "%d delayed jobs of %r were converted to the engine dialect", count, keys.queue
            )
