"""Lets delayed jobs wait for a worker when they are due."""

from __future__ import annotations

from tambomq.chasqui import lead_ops
from tambomq.chasqui.lead_ops import Office, Promotion
from tambomq.chasqui.leader import PEER_LOOK_S, Leader
from tambomq.store.aio import AsyncStore

TICK_MS = 100
"""A job that is added when the leader is asleep is noticed after so long at the latest."""


class Promoter(Leader):
    """Leads the delayed jobs of one queue, if nobody else does."""

    duty = "promoter"

    def __init__(self, store: AsyncStore, office: Office, tick_ms: int = TICK_MS) -> None:
        """Nothing is done before `run`."""
        super().__init__(store, office, office.keys.promoter_lock)
        self._tick_s = tick_ms / 1000
        self._moved: list[str] = []

    async def turn(self) -> float:
        """Promote a batch; return how many seconds to wait before the next."""
        moved, self._moved = self._moved, []
        calls = [lead_ops.promote(self._office)]
        if moved:
            calls.append(lead_ops.forget_indexes(self._office.keys, moved))  # type: ignore[arg-type]
        promotion: Promotion | None = (await self._store.run_all(calls))[0]
        self._leads(promotion is not None)
        if promotion is None:
            return PEER_LOOK_S
        self._moved = [id for id in promotion.ids if id]
        if self._moved:
            # More may be due, and there are indexes to forget.
            return 0
        is_full = promotion.wait_ms == 0 and not promotion.ids and not promotion.buried
        if promotion.wait_ms is None or is_full:
            return self._tick_s
        return min(self._tick_s, max(promotion.wait_ms, 1) / 1000)
