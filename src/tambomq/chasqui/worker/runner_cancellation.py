"""Cancellations of runners by cause: of the job, of the whole worker, or by the handler itself.

Runners are tasks that run handler after handler, so a cancellation that is over must be undone: the
next handler would take it for its own.
"""

from __future__ import annotations

import asyncio
from typing import Any


class RunnerCancellation:
    """Cancels the runners of one worker, and distinguishes the causes."""

    def __init__(self) -> None:
        """The current task is the worker's: its cancellation ends the worker."""
        self.runners: dict[str, asyncio.Task[Any]] = {}
        """The runner of each entry whose handler waits on the loop."""
        self.interrupted: set[str] = set()
        """Entries whose runner was cancelled because their job was."""
        self.is_closing = False
        self._worker = asyncio.current_task()

    def interrupt(self, entry: str) -> None:
        """Cancel the runner of *entry*, if its handler waits on the loop."""
        if (runner := self.runners.get(entry)) is not None:
            self.interrupted.add(entry)
            runner.cancel()

    @property
    def is_worker_ending(self) -> bool:
        """Whether runners are cancelled because the worker ends, or `asyncio.run` ends all tasks.

        A runner's own `cancelling` does not say that: a handler can cancel the task that runs it.
        """
        return self.is_closing or (self._worker is not None and self._worker.cancelling() > 0)

    def undo(self, entry: str = "") -> None:
        """Undo what this runner was cancelled for, unless the worker ends.

        A handler that cancels its own task, as libraries for time limits do, may leave this to us.
        """
        self.interrupted.discard(entry)
        if (runner := asyncio.current_task()) is not None and not self.is_worker_ending:
            while runner.cancelling():
                runner.uncancel()
