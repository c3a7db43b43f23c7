"""Why a worker process ended, and how long its successor waits. No I/O.

The first successor starts at once. Each that lives too short a time makes the next wait twice as
long, so that what cannot work does not keep the machine busy.
"""

from __future__ import annotations

import signal
from typing import Final

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
# A process that lived for so long did work: its end is no reason to wait.
WORKED_S: Final = 60.0

_KILL_HINT: Final = ", by the kernel if memory ran out"


class RestartBackoff:
    """The pauses before the restarts of one process."""

    def __init__(self) -> None:
        self._early_ends = 0

    def pause_s(self, lived_s: float) -> float:
        """Return how long to wait after a process ended by itself that lived *lived_s* seconds."""
        self._early_ends = 0 if lived_s >= WORKED_S else self._early_ends + 1
        if self._early_ends <= 1:
            return 0.0
        # Beyond 2 ** 16 times the first pause nothing changes.
        doubled = FIRST_PAUSE_S * 2.0 ** min(self._early_ends - 2, 16)
        return min(doubled, LONGEST_PAUSE_S)

    def reset(self) -> None:
        """Forget earlier ends: the code has changed."""
        self._early_ends = 0


def describe_end(code: int) -> str:
    """Return how a process ended, by the exit code of `subprocess`: negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (_KILL_HINT if -code == signal.SIGKILL else "")
