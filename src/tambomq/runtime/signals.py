"""Runs a worker on its own event loop until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tambomq.runtime.event_loop import loop_factory


def run_until_signalled(
    run: Callable[[], Awaitable[None]], stop: Callable[[], None], is_stopping: Callable[[], bool]
) -> None:
    """Await *run*; the first signal calls *stop*, a signal while stopping cancels it."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner, suppress(CancelledError):
        runner.run(_run_with_signal_handlers(run, stop, is_stopping))


async def _run_with_signal_handlers(
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
