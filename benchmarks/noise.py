"""The share of the machine that other processes used during a measurement. Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_STAT = Path("/proc/stat")

# A tenth of two cores is a fifth of one: about what a busy editor takes.
QUIET_BELOW = 0.10


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds of processor time up to a moment: of all processes, and of *pids*."""

    at_s: float
    all_s: float
    own_s: float

    @classmethod
    def take(cls, pids: Iterable[int]) -> Self:
        """Read the counters; those of *pids* with all that come of them."""
        ours = {each for pid in pids for each in _family(pid)}
        return cls(time.monotonic(), _all_s(), sum(map(_own_s, ours)))

    def others_since(self, earlier: Reading) -> float:
        """The share of all cores that others used since *earlier*, from 0 to 1."""
        capacity_s = (self.at_s - earlier.at_s) * (os.cpu_count() or 1)
        others = (self.all_s - earlier.all_s) - (self.own_s - earlier.own_s)
        return max(0.0, others / capacity_s) if capacity_s else 0.0


def _all_s() -> float:
    if not _STAT.exists():
        return 0.0
    with _STAT.open() as lines:
        user, nice, system, _idle, _io, _irq, _softirq, steal = map(
            int, lines.readline().split()[1:9]
        )
    # Interrupts are left out: those of loopback traffic are ours.
    return (user + nice + system + steal) / os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> Iterator[int]:
    """Yield *pid* and all processes that come of it."""
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [each for task in tasks for each in (task / "children").read_text().split()]
    except OSError:
        return
    for each in children:
        yield from _family(int(each))


def _own_s(pid: int) -> float:
    """User and system time of a process and of the children it has waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    # The name stands in parentheses and may hold anything; the times are fields 14 to 17.
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
