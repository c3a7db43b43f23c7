"""A worker process as its supervisor sees it: started, listened to, signalled, and its end awaited.

It has a process group of its own: Ctrl-C in a terminal reaches the supervisor alone, which then
decides, and what its handlers have started can be ended with it.
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
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from tambomq.work.messages import (
    GO,
    ConsumerMessage,
    ExitMessage,
    LoadedMessage,
    LoadFailedMessage,
    ProcessMessage,
    ProcessReport,
    decode_message,
)
from tambomq.work.options import WorkerProcessConfig, WorkOptions
from tambomq.work.supervisor.reaper import ProcessReaper

_MODULE: Final = "tambomq.work.process.child"
_MAX_LINE_BYTES: Final = 16 << 20
# Its last messages may still be in the socket.
_READ_REST_S: Final = 1.0

_log: Final = logging.getLogger(__name__)


class WorkerChild:
    """A process that was started, and its last messages."""

    def __init__(
        self,
        number: int,
        popen: subprocess.Popen[bytes],
        end: asyncio.Future[int],
        ours: socket.socket,
    ) -> None:
        """*end* will have the exit code, negative for a signal."""
        self.number, self.pid, self.end = number, popen.pid, end
        self.started_at = time.monotonic()
        self.loaded: LoadedMessage | None = None
        self.load_failed: LoadFailedMessage | None = None
        self.leaving: ExitMessage | None = None
        self.report: ProcessReport | None = None
        self.reported_at = self.started_at
        self.leases: dict[str, str] = {}
        """What releases the jobs of its consumers, by consumer; see `ConsumerMessage`."""
        self.was_killed = False
        """Whether we had to kill it."""
        self._popen, self._socket = popen, ours
        self._killing: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    def start(
        cls,
        number: int,
        options: WorkOptions,
        reaper: ProcessReaper,
        on_message: Callable[[WorkerChild, ProcessMessage], None],
    ) -> WorkerChild:
        """Start the process *number*; *on_message* is called with all that it tells."""
        ours, theirs = socket.socketpair()
        config = WorkerProcessConfig(number, os.getpid(), theirs.fileno(), options)
        # -P: a file queue.py in the current directory must not replace a module of Python's
        # before the directory is wanted, for the user's modules.
        command = [sys.executable, "-P", "-m", _MODULE, msgspec.json.encode(config).decode()]
        try:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        child = cls(number, popen, reaper.watch(popen.pid), ours)
        child._reading = asyncio.create_task(child._read(on_message))
        return child

    @property
    def lived_s(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.started_at

    @property
    def is_consuming(self) -> bool:
        """Whether each of its workers has read from its queue."""
        if self.report is None:
            return False
        return all(each.fetched_s_ago is not None for each in self.report.queues)

    def send_go(self) -> None:
        """Tell it that the banner is printed."""
        # Not by the stream: if the process has ended, it would lose the last messages as well.
        with suppress(OSError):
            self._socket.send(GO)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if not self.end.done():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, and what its handlers have started in its process group."""
        # Also after its end, when only they are left: the number of a process is not given to
        # another one as long as a group has it.
        self.was_killed = self.was_killed or not self.end.done()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def kill_after(self, delay_s: float) -> None:
        """Kill it if it still runs then; an earlier such call is replaced."""
        if self._killing is not None:
            self._killing.cancel()
        loop = asyncio.get_running_loop()
        self._killing = loop.call_later(delay_s, self._kill_late, delay_s)

    async def wait(self) -> int:
        """Wait for its end and its last messages; return the exit code."""
        code = await self.end
        if self._killing is not None:
            self._killing.cancel()
        # Ours is the only copy of this status: without it `subprocess` would look for one.
        self._popen.returncode = code
        if self._reading is not None:
            # A process that a handler has forked may keep the socket open.
            await asyncio.wait((self._reading,), timeout=_READ_REST_S)
            self._reading.cancel()
        if code != 0:
            self.kill()
        return code

    def _kill_late(self, after_s: float) -> None:
        if not self.end.done():
            _log.error(
                "process %d (pid %d) has not ended within %.0f s: killed",
                *(self.number, self.pid, after_s),
                extra={"worker_process": self.number},
            )
            self.kill()

    async def _read(self, on_message: Callable[[WorkerChild, ProcessMessage], None]) -> None:
        reader, writer = await asyncio.open_unix_connection(
            sock=self._socket, limit=_MAX_LINE_BYTES
        )
        try:
            while line := await reader.readline():
                message = decode_message(line)
                self._note(message)
                on_message(self, message)
        except (ConnectionError, msgspec.DecodeError):
            # It was killed while it wrote.
            return
        finally:
            writer.close()

    def _note(self, message: ProcessMessage) -> None:
        match message:
            case LoadedMessage():
                self.loaded = message
            case LoadFailedMessage():
                self.load_failed = message
            case ExitMessage():
                self.leaving = message
            case ProcessReport():
                self.report, self.reported_at = message, time.monotonic()
            case ConsumerMessage(consumer=consumer, lease=None):
                self.leases.pop(consumer, None)
            case ConsumerMessage(consumer=consumer, lease=str(lease)):
                self.leases[consumer] = lease
