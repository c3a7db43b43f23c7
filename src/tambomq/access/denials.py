"""Counts denied calls by user and right, and logs them: never a body, never a token."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from tambomq.errors import AccessDenied, NotAuthenticated

MAX_SERIES: Final = 200
"""Pairs of user and right that are counted by themselves; the others are summed."""
OTHER: Final = "_other"
UNKNOWN: Final = "_unknown"
"""The user of calls without valid credentials."""
LOGIN: Final = "login"
"""What is counted as the right of such calls."""
MAX_LINES: Final = 20
"""Lines that are logged at once; then one more every `ONE_MORE_S`."""
ONE_MORE_S: Final = 1.0

_log = logging.getLogger(__name__)


class Denial(msgspec.Struct, frozen=True):
    """How many calls of a user were denied for want of a right."""

    user: str
    right: str
    count: int


class Denials:
    """The denied calls of one server. *now_s* is a monotonic clock."""

    def __init__(self, service: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._service, self._now_s = service, now_s
        self._counts: dict[tuple[str, str], int] = {}
        self._lines, self._at_s, self._suppressed = float(MAX_LINES), now_s(), 0

    def count(self, error: AccessDenied | NotAuthenticated, address: str = "") -> None:
        """Count and log a call that was denied for *error*."""
        key = (UNKNOWN, LOGIN)
        if isinstance(error, AccessDenied):
            key = (error.user, error.right)
        if key not in self._counts and len(self._counts) >= MAX_SERIES:
            key = (OTHER, OTHER)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._write(error, key, address)

    def list(self) -> list[Denial]:
        """Return the counts."""
        return [Denial(user, right, count) for (user, right), count in self._counts.items()]

    def _write(self, error: Exception, key: tuple[str, str], address: str) -> None:
        now_s = self._now_s()
        self._lines = min(MAX_LINES, self._lines + (now_s - self._at_s) / ONE_MORE_S)
        self._at_s = now_s
        if self._lines < 1:
            self._suppressed += 1
            return
        self._lines -= 1
        more = f" ({self._suppressed} more since the last line)" if self._suppressed else ""
        self._suppressed = 0
        fields = {"user": key[0], "right": key[1], "client": address}
        _log.warning(
            "%s denied a call from %s: %s%s", self._service, address, error, more, extra=fields
        )
