"""Who a process is, in words that tell another on the same machine whether it is still there.

Spark ends the process that holds a lease with no word of warning. A follower on the same machine
need not wait until the lease ends if it can see that nobody has it any more.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from pathlib import Path
from typing import Final

_LABEL: Final = re.compile(r"process (\d+) on .+ \((\w+)-(\w+)\)")
_STATE: Final = 0
_STARTED: Final = 19
"""Places in what stands after the name in /proc/<pid>/stat."""
_UNKNOWN: Final = "x"


def label() -> str:
    """Return who this process is."""
    pid = os.getpid()
    return f"process {pid} on {socket.gethostname()} ({_machine()}-{_started(pid)})"


def is_gone(who: str) -> bool:
    """Whether *who* was a process of this machine, and is not there any more."""
    known = _LABEL.fullmatch(who)
    if known is None or known[2] != _machine():
        return False
    pid, started = int(known[1]), known[3]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # Another user's: there is a process of that number, though perhaps not the one that was.
        pass
    return _started(pid) != started


def _machine() -> str:
    """Return what two processes have in common only if each sees the other's number."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        numbers = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot = numbers = _UNKNOWN
    words = f"{socket.gethostname()}\n{boot}\n{numbers}"
    return hashlib.sha256(words.encode()).hexdigest()[:8]


def _started(pid: int) -> str:
    """Return when a process was started, in ticks; '' for one that has ended but is not buried."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return _UNKNOWN
    fields = text.rpartition(")")[2].split()
    return "" if fields[_STATE] in "ZX" else fields[_STARTED]
