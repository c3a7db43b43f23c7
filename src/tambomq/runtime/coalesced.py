"""A costly value that concurrent callers share: computed once for all, cached for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Coalesced(Generic[T]):
    """A costly value, computed once for all concurrent callers and cached for *max_age_s*."""

    def __init__(self, compute: Callable[[], Awaitable[T]], max_age_s: float) -> None:
        self._compute, self._max_age_s = compute, max_age_s
        self._result: asyncio.Future[T] | None = None
        self._computed_at = float("-inf")

    async def get(self) -> T:
        """Return the value, or raise the error of computing it. Errors are not cached."""
        result = self._result
        if result is None or (result.done() and not self._is_fresh(result)):
            result = self._result = asyncio.ensure_future(self._compute())
            result.add_done_callback(self._on_done)
        # A caller that is cancelled must not cancel it for the others.
        return await asyncio.shield(result)

    def invalidate(self) -> None:
        """Compute the value again at the next `get`."""
        self._result = None

    def _on_done(self, result: asyncio.Future[T]) -> None:
        self._computed_at = time.monotonic()
        if not result.cancelled():
            # If all callers were cancelled, the error is never retrieved, and asyncio would warn.
            result.exception()

    def _is_fresh(self, result: asyncio.Future[T]) -> bool:
        if result.cancelled() or result.exception():
            return False
        return time.monotonic() - self._computed_at < self._max_age_s
