"""The backoff of retries: computes the delay before a failed job's next run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from tambomq.chasqui.job import U32, BackoffSpec

T = TypeVar("T")

QUEUE_BACKOFF = BackoffSpec("exponential", 100, 30_000, 2.0, 100)
"""The default of a queue whose worker has no backoff option."""


def wait_ms(
    spec: BackoffSpec | None,
    retry: int,
    draw: Callable[[int], int],
    default: BackoffSpec = QUEUE_BACKOFF,
) -> int:
    """Return the delay before retry number *retry*, counted from 1.

    Fields that *spec* leaves out come from *default*. ``draw(n)`` returns a uniformly random
    whole number from 0 to n - 1. No stored spec makes this raise.
    """
    spec = spec or default
    cap_ms = max(_first(spec.max_delay_ms, default.max_delay_ms, QUEUE_BACKOFF.max_delay_ms), 0)
    jitter_ms = _first(spec.jitter_ms, default.jitter_ms, QUEUE_BACKOFF.jitter_ms)
    base_ms: float = spec.delay_ms
    if spec.kind != "fixed":
        factor = _first(spec.multiplier, default.multiplier, QUEUE_BACKOFF.multiplier)
        base_ms = _grown(spec.delay_ms, factor, retry)
    # False for NaN too, which the engine caps like infinity.
    whole_ms = int(max(base_ms, 0)) if base_ms < cap_ms else cap_ms
    return whole_ms + (draw(jitter_ms) if jitter_ms > 0 else 0)


def _grown(delay_ms: int, factor: float, retry: int) -> float:
    power = min(max(retry - 1, 0), U32)
    try:
        return delay_ms * float(factor) ** power
    except OverflowError:
        growth = -math.inf if factor < 0 and power % 2 else math.inf
        return delay_ms * growth


def _first(*values: T | None) -> T:
    return next(value for value in values if value is not None)
