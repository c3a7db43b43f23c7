"""Waiting for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

_EVERY_S = 0.005
# Callers say how long an idle machine may need. Others' work must not make a test fail.
_BUSY, _MAX_WAIT_S = 6, 120.0

LAST_S = float(os.environ.get("TAMBO_TEST_WAIT_S") or "inf")
"""No wait is longer. For runs in which most of what is waited for never comes: `tests.mutants`."""


def eventually(condition: Callable[[], T], *, within_s: float = 5.0) -> T:
    """Return the first truthy value of *condition*.

    An `AssertionError` inside it means "not yet". Raises `AssertionError` when *within_s* is over,
    several times over: a busy machine is slow and not wrong.
    """
    wait = _Wait(condition, within_s)
    while True:
        try:
            if wait.holds(value := condition()):
                return value
        except AssertionError as exc:
            wait.failed(exc)
        time.sleep(_EVERY_S)


@overload
async def eventually_async(
    condition: Callable[[], Awaitable[T]], *, within_s: float = 5.0
) -> T: ...
@overload
async def eventually_async(condition: Callable[[], T], *, within_s: float = 5.0) -> T: ...
async def eventually_async(condition: Callable[[], Any], *, within_s: float = 5.0) -> Any:
    """`eventually` for a condition that may be awaited."""
    wait = _Wait(condition, within_s)
    while True:
        try:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if wait.holds(value):
                return value
        except AssertionError as exc:
            wait.failed(exc)
        await asyncio.sleep(_EVERY_S)


class _Wait:
    """The deadline of one wait, and what it says when it is over."""

    def __init__(self, condition: Callable[[], object], within_s: float) -> None:
        self._condition = condition
        self._within_s = min(LAST_S, max(within_s, min(within_s * _BUSY, _MAX_WAIT_S)))
        self._deadline = time.monotonic() + self._within_s

    def holds(self, value: object) -> bool:
        if value:
            return True
        if time.monotonic() >= self._deadline:
            raise _Over(f"{self._what()} was still {value!r} after {self._within_s} s")
        return False

    def failed(self, exc: AssertionError) -> None:
        if isinstance(exc, _Over):
            raise exc
        if time.monotonic() >= self._deadline:
            raise _Over(f"{self._what()} still fails after {self._within_s} s: {exc}") from exc

    def _what(self) -> str:
        """The condition as its test spells it."""
        try:
            lines = inspect.getsource(self._condition).split("\n")
        except (OSError, TypeError):
            return repr(self._condition)
        return " ".join(line.strip() for line in lines).strip()


class _Over(AssertionError):
    """The deadline has passed."""
