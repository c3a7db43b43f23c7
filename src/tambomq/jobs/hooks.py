"""Calls start and stop hooks: coroutine functions or plain ones, with the state or nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

Hook: TypeAlias = Callable[[], Any] | Callable[[dict[str, Any]], Any]


async def call_hook(hook: Callable[..., Any], state: dict[str, Any]) -> None:
    """Call *hook*, with *state* if it has a parameter, and wait for it."""
    value = hook(state) if inspect.signature(hook).parameters else hook()
    if inspect.isawaitable(value):
        await value
