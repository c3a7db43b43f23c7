"""Collects processes that have ended: our own, and orphans if we are process 1.

In a container the first process inherits those whose parents have ended, and must collect them, or
they stay as zombies. So this waits for any process, and nothing else in the supervisor may wait.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress


class ProcessReaper:
    """Knows when processes end. One for each process, since SIGCHLD is one."""

    def __init__(self) -> None:
        self._ends: dict[int, asyncio.Future[int]] = {}

    def start(self) -> None:
        """Begin to collect, in the running event loop."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.collect)

    def stop(self) -> None:
        """Collect nothing more."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    def watch(self, pid: int) -> asyncio.Future[int]:
        """Return a future of the exit code of *pid*, negative if a signal killed it.

        Call it in the turn of the event loop that started the process: then it cannot be missed.
        """
        return self._ends.setdefault(pid, asyncio.get_running_loop().create_future())

    def collect(self) -> None:
        """Collect all that have ended. One signal may stand for several ends."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                # No future: an orphan.
                end = self._ends.pop(pid, None)
                if end is not None and not end.done():
                    end.set_result(os.waitstatus_to_exitcode(status))
