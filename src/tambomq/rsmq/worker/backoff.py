"""Exponential backoff with jitter between the retries of a failed message."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tambomq.errors import InvalidValue
from tambomq.rsmq.model import MAX_SECONDS


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow by *factor*: *first_s*, twice that, … up to *longest_s*.

    *jitter* takes up to that share off each delay, at random, so that messages
    that failed together are not retried together.
    """

    first_s: float = 1.0
    longest_s: float = 300.0
    factor: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        """Raise `InvalidValue` for delays out of range."""
        if not 0 <= self.first_s <= self.longest_s <= MAX_SECONDS:
            raise InvalidValue("backoff", self, f"0 ≤ first_s ≤ longest_s ≤ {MAX_SECONDS}")
        if self.factor < 1 or not 0 <= self.jitter <= 1:
            raise InvalidValue("backoff", self, "of factor ≥ 1 and jitter between 0 and 1")

    def wait_s(self, receives: int) -> float:
        """Return the delay after the failure of receive number *receives*, in seconds."""
        # Bound the exponent before it is used: 2.0 ** 1100 overflows a float.
        doublings = min(receives - 1, 64)
        whole_s = min(self.first_s * self.factor**doublings, self.longest_s)
        return whole_s * (1 - random.uniform(0, self.jitter))
