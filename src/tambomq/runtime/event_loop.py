"""The choice of an event loop: uvloop's where it is installed, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the `loop_factory` for `asyncio.Runner`; ``None`` is asyncio's own loop."""
    try:
        import uvloop  # noqa: PLC0415  (not installed on every platform)
    except ImportError:
        return None
    return uvloop.new_event_loop
