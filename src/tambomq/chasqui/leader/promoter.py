"""Lets delayed jobs wait for a worker when they are due, and keeps them readable for all."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from tambomq.chasqui import convert_ops, lead_ops
from tambomq.chasqui.lead_ops import Office, Promotion
from tambomq.chasqui.leader import PEER_LOOK_S, Leader
from tambomq.clock import Deadline
from tambomq.errors import StoreError
from tambomq.store.aio import AsyncStore

if TYPE_CHECKING:
    from typing import Any

    from tambomq.store.call import Call

log = logging.getLogger(__name__)

TICK_MS = 100
"""A job that is added when the leader is asleep is noticed after so long at the latest."""
PRUNE_EVERY_S = 60.0
"""How often consumers of killed workers are looked for."""
SIGNS_EVERY_S = 1.0
"""How often to look whether a released engine has joined: it leads when this one leaves."""


class Promoter(Leader):
    """Leads the delayed jobs of one queue, if nobody else does."""

    duty = "promoter"

    def __init__(self, store: AsyncStore, office: Office, tick_ms: int = TICK_MS) -> None:
        """Nothing is done before `run`."""
        super().__init__(store, office, office.keys.promoter_lock)
        self._tick_s = tick_ms / 1000
        self._moved: list[str] = []
        self._signs_at, self._prune_at = Deadline(0), Deadline(0)

    async def turn(self) -> float:
        """Promote a batch; return how many seconds to wait before the next."""
        moved, self._moved = self._moved, []
        calls: list[Call[Any]] = [lead_ops.promote(self._office)]
        if moved:
            calls.append(lead_ops.forget_indexes(self._office.keys, moved))
        promotion: Promotion | None = (await self._store.run_all(calls))[0]
        self._leads(promotion is not None)
        if promotion is None:
            return PEER_LOOK_S
        if self._signs_at.passed:
            self._signs_at = Deadline(SIGNS_EVERY_S)
            await self._convert()
        if self._prune_at.passed:
            self._prune_at = Deadline(PRUNE_EVERY_S)
            await self._store.run(lead_ops.prune_consumers(self._office.keys))
        self._moved = [id for id in promotion.ids if id]
        if self._moved:
            # More may be due, and there are indexes to forget.
            return 0
        is_full = promotion.wait_ms == 0 and not promotion.ids and not promotion.buried
        if promotion.wait_ms is None or is_full:
            return self._tick_s
        return min(self._tick_s, max(promotion.wait_ms, 1) / 1000)

    async def resign(self) -> None:
        """Let another lead, after a last look whether it could read what is delayed."""
        with suppress(StoreError):
            await self._convert()
        await super().resign()

    async def _convert(self) -> None:
        """Store what a released engine could not read as it does, if one shares the queue."""
        keys = self._office.keys
        if await self._store.run(convert_ops.signs(keys)) == convert_ops.MUST_CONVERT:
            count = await self._store.follow(convert_ops.convert(keys))
            log.info(
                "%d delayed jobs of %r were stored as the engine reads them", count, keys.queue
            )
