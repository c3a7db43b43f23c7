"""The parent process of the embedded server: no server outlives its owner.

Run as a script with nothing but the standard library: ``supervisor.py LEASE COMMAND…``. LEASE is
the read end of a pipe whose other end only the owner holds: the kernel closes it even for an owner
that got SIGKILL, and this works on macOS as on Linux. (A child that the owner forks would hold it
too: `server` closes it there.) When the lease ends, or on SIGTERM, the server is asked to stop,
then killed after `GRACE_S`. The supervisor's exit status is the server's.

Stdout carries one line, the server's pid. The locks the owner passes down are inherited; the
kernel drops them when supervisor and server end.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

GRACE_S: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1


def main() -> int:
    """Run the server until it ends or the lease does."""
    lease, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(lease, False)  # noqa: FBT003  (its only form)
    # The server would create its files readable by everyone.
    os.umask(0o077)
    wake = _wake_on(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    server = _spawn(command)
    os.write(1, f"{server}\n".encode())
    os.close(1)
    while (status := _status(server)) is None:
        ready = _readable(lease, wake)
        if lease in ready or any(s != signal.SIGCHLD for s in os.read(wake, 64)):
            status = _stop(server, wake)
            break
    return status


def _readable(*files: int, within_s: float | None = None) -> set[int]:
    """Wait until some of *files* can be read, or have ended; return these."""
    # Not `select`: it raises for the high numbers that files of an owner with many have.
    poll = select.poll()
    for each in files:
        poll.register(each, select.POLLIN)
    return {file for file, _ in poll.poll(None if within_s is None else within_s * 1000)}


def _wake_on(*signals: signal.Signals) -> int:
    """Return a file that becomes readable when one of *signals* arrives."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for each in signals:
        signal.signal(each, lambda *_: None)
    return reader


def _spawn(command: list[str]) -> int:
    prctl = _prctl()
    supervisor = os.getpid()
    if (pid := os.fork()) != 0:
        return pid
    try:
        # If the supervisor itself is killed, Linux can signal the server. The signal is only sent
        # for deaths after the call, so check that the parent is still alive.
        if prctl:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        os.dup2(2, 1)
        if os.getppid() == supervisor:
            os.execv(command[0], command)  # noqa: S606  (no shell is wanted)
    except OSError as exc:
        os.write(2, f"cannot run {command[0]}: {exc.strerror}\n".encode())
    finally:
        os._exit(127)


def _prctl() -> Callable[[int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # noqa: PLC0415  (not to be had everywhere)

    prctl: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    return prctl


def _status(server: int) -> int | None:
    """Return the exit code of the server, 128 + signal if it was killed, ``None`` if it lives."""
    pid, status = os.waitpid(server, os.WNOHANG)
    if pid == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _stop(server: int, wake: int) -> int:
    os.kill(server, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while (status := _status(server)) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            os.kill(server, signal.SIGKILL)
        if _readable(wake, within_s=max(left, 0.05)):
            os.read(wake, 64)
    return status


if __name__ == "__main__":
    sys.exit(main())
