"""The resident memory of this process: read from the kernel on Linux, asked of ``ps`` elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_STATM: Final = Path("/proc/self/statm")
_IS_LINUX: Final = sys.platform.startswith("linux")
_KIB: Final = 1024


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if it cannot be found out."""
    try:
        if _IS_LINUX:
            return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        command = ["/bin/ps", "-o", "rss=", "-p", str(os.getpid())]
        return int(subprocess.check_output(command)) * _KIB
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return 0
