"""A worker on an event loop of its own, stopped by SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextlib import suppress


def run_until_signalled(
    run: Callable[[], Awaitable[None]], stop: Callable[[], None], is_stopping: Callable[[], bool]
) -> None:
    """Await *run*; the first signal calls *stop*, one that comes while stopping cancels it."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner, suppress(CancelledError):
        runner.run(_signalled(run, stop, is_stopping))


async def _signalled(
    run: Callable[[], Awaitable[None]], stop: Callable[[], None], is_stopping: Callable[[], bool]
) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def on_signal() -> None:
        if is_stopping() and task is not None:
            task.cancel()
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    await run()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  (not installed everywhere)
    except ImportError:
        return None
    return uvloop.new_event_loop
