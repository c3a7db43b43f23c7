"""Gauges of a soak: memory and file descriptors of each process, and keys of Redis."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, groupby
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Final

WARM_UP_S: Final = 600.0
"""Memory counts from then on, for most subjects: caches and pools have their size."""
WINDOW_S: Final = 60.0
"""Of each window only the lowest sample counts: a backlog comes and goes, a leak stays."""
MIN_WINDOWS: Final = 6
MAX_SLOPE_MB_H: Final = 1.0
_SURE: Final = 1.645
"""In standard deviations: the slope is above its lower bound in 19 of 20 cases."""
MAX_MORE_FDS: Final = 16
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Growth:
    """A slope in MB per hour, and the lower bound of what it may be in truth."""

    slope: float
    at_least: float

    @property
    def is_leak(self) -> bool:
        """Whether it is more than allowed, and not what chance may do."""
        return self.slope > MAX_SLOPE_MB_H and self.at_least > 0


def growth(points: Sequence[tuple[float, float]]) -> Growth:
    """Return the growth of *points*, in seconds and MB, by Theil and Sen: the median of all slopes.

    Outliers do not move it, and the order of the slopes gives its bounds (Kendall's tau). One step
    up has the lower bound 0: it may be a cache that was filled. Growth in every window has not.
    """
    slopes = sorted(
        (later - earlier) / (until - since) * 3600
        for (since, earlier), (until, later) in combinations(points, 2)
    )
    count = len(points)
    spread = _SURE * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    lowest = max(0, int((len(slopes) - spread) / 2))
    return Growth(median(slopes), slopes[lowest])


class Gauges:
    """Samples of one process, from its start. Its memory counts after *warm_up_s*."""

    def __init__(self, began: float, warm_up_s: float = WARM_UP_S) -> None:
        self._began, self._warm_up_s = began, warm_up_s
        self.memory: list[tuple[float, float]] = []
        """Seconds since the start, and MB."""
        self.fds: list[int] = []
        self.cpu_s = 0.0
        """Seconds of processor time since the process began."""

    def sample(self, now: float, pid: int) -> None:
        """Read the gauges of *pid*; nothing if it has ended."""
        try:
            # Without the pages of files: those of libraries come and go with other work.
            _, resident, of_files, *_ = Path(f"/proc/{pid}/statm").read_text().split()
            pages = int(resident) - int(of_files)
            fds = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
            # After the name, which may contain anything.
            times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        except OSError:
            return
        self.memory.append((now - self._began, pages * _PAGE / 1e6))
        self.fds.append(fds)
        self.cpu_s = sum(map(int, times)) / _TICKS

    @property
    def growth(self) -> Growth | None:
        """How memory grows once the process is warm; `None` as long as that is not known."""
        warm = [(at, mb) for at, mb in self.memory if at > self._warm_up_s]
        windows = [list(found) for _, found in groupby(warm, lambda each: each[0] // WINDOW_S)]
        lowest = [min(window, key=lambda each: each[1]) for window in windows]
        return growth(lowest) if len(lowest) >= MIN_WINDOWS else None

    @property
    def more_fds(self) -> int:
        """How many more descriptors are open than in the first half."""
        half = len(self.fds) // 2
        return max(self.fds[half:], default=0) - max(self.fds[:half], default=0) if half else 0


def is_flat(counts: Sequence[int]) -> bool:
    """Whether counts do not grow: the last third is at most a little above the first."""
    third = len(counts) // 3
    if third < 2:
        return True
    before, after = sorted(counts[:third])[third // 2], sorted(counts[-third:])[third // 2]
    return after <= before * 1.2 + 50


def descendants(pid: int) -> Iterator[tuple[str, int]]:
    """Yield the name and the id of each process that *pid* has started, and of what these have."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # It has ended.
            for child in map(int, task.read_text().split()):
                name = Path(f"/proc/{child}/comm").read_text().strip()
                yield name, child
                yield from descendants(child)
