"""Describes the process of a lease holder as text, and checks whether that process is dead.

Spark kills the process that holds a lease without warning. A successor on the same machine can see
that it is dead, and need not wait for its hold to expire.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from pathlib import Path
from typing import Final

_DESCRIPTION: Final = re.compile(r"process (\d+) on .+ \((\w+)-(\w+)\)")
_STATE: Final = 0
_START_TIME: Final = 19
"""Indexes of the fields that follow the process's name in /proc/<pid>/stat."""
_UNKNOWN: Final = "x"


def describe_process() -> str:
    """Return a description of this process: pid, host, and a fingerprint of machine and start."""
    pid = os.getpid()
    return f"process {pid} on {socket.gethostname()} ({_machine_id()}-{_start_time(pid)})"


def is_dead(holder: str) -> bool:
    """Whether *holder* describes a process of this machine that certainly no longer exists.

    False if that cannot be known: for a process of another machine, where there is no /proc (as on
    macOS), or if its pid is in use and /proc does not show by whom, as with the mount option
    ``hidepid``.
    """
    known, machine = _DESCRIPTION.fullmatch(holder), _machine_id()
    if known is None or machine == _UNKNOWN or known[2] != machine:
        return False
    pid, started = int(known[1]), known[3]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # Another user's process has this pid; it may or may not be the one that was described.
        pass
    now = _start_time(pid)
    return _UNKNOWN not in (now, started) and now != started


def _machine_id() -> str:
    """Return a fingerprint that two processes share only if they see each other's pids.

    `_UNKNOWN` without /proc: a host name alone may be that of two machines.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        pid_namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return _UNKNOWN
    words = f"{socket.gethostname()}\n{boot}\n{pid_namespace}"
    return hashlib.sha256(words.encode()).hexdigest()[:8]


def _start_time(pid: int) -> str:
    """Return when a process was started, in clock ticks; '' for a zombie, `_UNKNOWN` if hidden."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _UNKNOWN
    fields = text.rpartition(")")[2].split()
    return "" if fields[_STATE] in "ZX" else fields[_START_TIME]
