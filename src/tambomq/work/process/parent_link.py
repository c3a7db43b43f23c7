"""A worker process's link to its supervisor: sends reports, and notices when the supervisor ends.

A thread does both, so that reports go on while a handler blocks the event loop, and no process
outlives its supervisor for long, however that ended. Linux also sends a signal.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tambomq.work.messages import GO, ProcessMessage, encode_message

REPORT_EVERY_S: Final = 0.5

GONE: Final = signal.SIGHUP
"""What the kernel sends when the supervisor ends. Not SIGTERM: that might count as the second."""

_PR_SET_PDEATHSIG: Final = 1


class ParentLink:
    """The worker's end of the socket to its supervisor."""

    def __init__(self, fd: int, on_supervisor_gone: Callable[[], None]) -> None:
        """*on_supervisor_gone* is called in the link's thread."""
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._on_gone = on_supervisor_gone
        self._report: Callable[[], ProcessMessage] | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.go = threading.Event()
        """Set when the banner is printed."""

    def start(self) -> None:
        """Watch the supervisor from a thread."""
        threading.Thread(target=self._run, name="supervisor-link", daemon=True).start()

    def send(self, message: ProcessMessage) -> None:
        """Send *message*, from any thread; nothing happens if the supervisor is gone."""
        with self._lock, suppress(OSError):
            self._socket.sendall(encode_message(message))

    def report_with(self, report: Callable[[], ProcessMessage]) -> None:
        """Send what *report* returns, again and again."""
        self._report = report

    def close(self) -> None:
        """Send the last report."""
        self._closed.set()
        if self._report is not None:
            self.send(self._report())

    def _run(self) -> None:
        # Not `select`: it raises for the high numbers that sockets of a busy process have.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not self._closed.is_set():
            if poll.poll(REPORT_EVERY_S * 1000):
                received = b""
                with suppress(OSError):
                    received = self._socket.recv(64)
                if not received:
                    self.go.set()
                    self._on_gone()
                    return
                if GO in received:
                    self.go.set()
            elif self._report is not None:
                self.send(self._report())


def die_with(supervisor: int) -> None:
    """Let the kernel send `GONE` when the supervisor ends, where it can; now if it has ended."""
    if sys.platform.startswith("linux"):
        import ctypes  # noqa: PLC0415  (not to be had everywhere)

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, GONE)
    if os.getppid() != supervisor:
        os.kill(os.getpid(), GONE)
