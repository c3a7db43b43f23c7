"""The limit of wrong tokens: per address, and of all addresses together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PER_ADDRESS: Final = 5
"""Wrong tokens that an address may send at once; then one more every `ONE_MORE_S`."""
OF_ALL: Final = 50
ONE_MORE_S: Final = 12.0
ALL_ONE_MORE_S: Final = 1.2

_MAX_ADDRESSES: Final = 10_000


@dataclass(slots=True)
class TokenBucket:
    """Permits that are used up and come back, one every *refill_s*."""

    size: int
    refill_s: float
    left: float
    at_s: float

    def wait_s(self, now_s: float) -> float:
        """Return how long until there is a permit; 0 if there is one."""
        self._refill(now_s)
        return 0.0 if self.left >= 1 else (1 - self.left) * self.refill_s

    def take(self, now_s: float) -> None:
        """Use up a permit, if there is one."""
        self._refill(now_s)
        self.left = max(0.0, self.left - 1)

    def is_full(self, now_s: float) -> bool:
        """Return whether no permit is used."""
        self._refill(now_s)
        return self.left >= self.size

    def _refill(self, now_s: float) -> None:
        self.left = min(self.size, self.left + (now_s - self.at_s) / self.refill_s)
        self.at_s = now_s


class LoginLimit:
    """Counts wrong tokens. *now_s* is a monotonic clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._all = TokenBucket(OF_ALL, ALL_ONE_MORE_S, OF_ALL, now_s())
        self._addresses: OrderedDict[str, TokenBucket] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return how long *address* has to wait before a token of it is looked at."""
        now_s = self._now_s()
        own = self._addresses.get(address)
        return max(self._all.wait_s(now_s), own.wait_s(now_s) if own else 0.0)

    def failed(self, address: str) -> None:
        """Count a wrong token of *address*."""
        now_s = self._now_s()
        own = self._addresses.pop(address, None)
        own = own or TokenBucket(PER_ADDRESS, ONE_MORE_S, PER_ADDRESS, now_s)
        own.take(now_s)
        self._addresses[address] = own
        self._all.take(now_s)
        if len(self._addresses) > _MAX_ADDRESSES:
            self._addresses.popitem(last=False)
