"""A rate limiter for loops that move messages. It never sleeps: it returns how long to wait."""

from __future__ import annotations

from typing import Final

_STEPS_PER_S: Final = 5


class RateLimiter:
    """Limits a loop to *per_s* items a second; `None` for no limit."""

    __slots__ = ("_per_s", "step")

    def __init__(self, per_s: float | None, max_step: int) -> None:
        self._per_s = per_s
        # Small steps, so that workers see a steady flow instead of a burst each second.
        self.step = max_step if per_s is None else max(1, min(max_step, int(per_s / _STEPS_PER_S)))
        """Items for each step of the loop, up to *max_step*."""

    def wait_s(self, done: int, elapsed_s: float) -> float:
        """Return how long to wait after *done* in *elapsed_s* seconds."""
        return 0.0 if self._per_s is None else max(0.0, done / self._per_s - elapsed_s)
