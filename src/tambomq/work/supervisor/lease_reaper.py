"""Has the jobs of worker processes that have ended given back, so that others run them at once.

Only when nothing of the process lives any more: it has been collected, and what its handlers have
started in its process group has ended. Another process does it (`process/lease_release.py`). When
that fails, or the supervisor ends first, the leases run out as they would have.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Final

import msgspec

from tambomq.work.messages import ReleaseResult
from tambomq.work.supervisor.reaper import ProcessReaper
from tambomq.work.supervisor.worker_child import WorkerChild

LAST_S: Final = 5.0
"""How long the end of the supervisor waits for jobs to be given back."""

_MODULE: Final = "tambomq.work.process.lease_release"
# What it has started may take its time to end; leases are not longer, as a rule.
_GROUP_ENDS_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.02

_log: Final = logging.getLogger(__name__)
_decode: Final = msgspec.json.Decoder(ReleaseResult).decode


class LeaseReaper:
    """Releases the leases of processes that have ended, several at once if they end together."""

    def __init__(self, reaper: ProcessReaper) -> None:
        """Start nothing before `release`."""
        self._reaper = reaper
        self._due: list[str] = []
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def release(self, child: WorkerChild) -> None:
        """Release the leases of *child*, which has ended, as soon as its process group has."""
        if child.leases:
            task = asyncio.create_task(self._release(child))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish what is under way, for up to `LAST_S`."""
        if tasks := tuple(self._tasks):
            await asyncio.wait(tasks, timeout=LAST_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _release(self, child: WorkerChild) -> None:
        if not await _group_ended(child.pid):
            text = "processes that process %d (pid %d) has started still run: its jobs stay leased"
            _log.warning(text, child.number, child.pid, extra={"worker_process": child.number})
            return
        self._due += child.leases.values()
        async with self._turn:
            # All that have come together while another one ran.
            due, self._due = self._due, []
            try:
                if due:
                    await self._run(due)
            except (OSError, msgspec.DecodeError) as error:
                # No process could be started, or it was killed while it wrote.
                _log.warning("cannot give back the jobs of processes that ended: %s", error)

    async def _run(self, leases: list[str]) -> None:
        popen, ours = _start()
        # Collected as every child of the supervisor, and not by asyncio.
        end = self._reaper.watch(popen.pid)
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            with suppress(ConnectionError):
                writer.write("".join(f"{each}\n" for each in leases).encode())
                writer.write_eof()
                while line := await reader.readline():
                    _report(_decode(line))
            writer.close()
            popen.returncode = await end
        except BaseException:
            popen.returncode = -1
            if not end.done():
                os.kill(popen.pid, signal.SIGKILL)
            raise


def _start() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process that releases leases; return it, and what it reads and writes."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", _MODULE]
    # In a group of its own: Ctrl-C in a terminal is for the supervisor.
    with theirs:
        fd = theirs.fileno()
        try:
            return subprocess.Popen(command, stdin=fd, stdout=fd, process_group=0), ours
        except OSError:
            ours.close()
            raise


async def _group_ended(leader: int) -> bool:
    """Wait until the process group of *leader* is empty; return whether it is."""
    until = time.monotonic() + _GROUP_ENDS_WITHIN_S
    while time.monotonic() < until:
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            # One that has taken another user's rights.
            pass
        await asyncio.sleep(_LOOK_EVERY_S)
    return False


def _report(result: ReleaseResult) -> None:
    if result.error:
        _log.warning(
            "cannot give back the jobs of queue %r that a process had when it ended: %s; they run "
            "again when their lease has run out",
            *(result.queue, result.error),
            extra={"queue": result.queue},
        )
    elif result.jobs:
        many = "1 job" if result.jobs == 1 else f"{result.jobs} jobs"
        _log.info(
            "gave back %s of queue %r that a process had when it ended",
            *(many, result.queue),
            extra={"queue": result.queue, "count": result.jobs},
        )
