"""The duration of the tests, from the file that ``pytest --junit-xml`` wrote.

``make budget`` shows the slowest of the quick tier, and those that should have a mark.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

SLOWEST = 25
LIMIT_S = 3.0
"""Longer than this on an idle core, and a test wants to be quicker or to be marked `slow`."""


def durations(report: Path) -> dict[str, float]:
    """Seconds by test, with all that was made ready for it and put away after it."""
    # pytest wrote it for us a moment ago.
    cases = ET.parse(report).iter("testcase")  # noqa: S314
    return {
        f"{case.get('classname')}::{case.get('name')}": float(case.get("time", 0)) for case in cases
    }


def summary(took: dict[str, float]) -> str:
    """The slowest tests, the sum by folder, and those over the limit."""
    by_time = sorted(took.items(), key=lambda each: -each[1])
    by_folder: dict[str, float] = {}
    for name, seconds in by_time:
        folder = ".".join(name.partition("::")[0].split(".")[:2])
        by_folder[folder] = by_folder.get(folder, 0) + seconds
    lines = [f"{len(took)} tests, {sum(took.values()):.0f} s in all processes together", ""]
    lines += [f"{seconds:8.1f} s  {folder}" for folder, seconds in by_folder.items()]
    lines += ["", f"the {SLOWEST} slowest:"]
    lines += [f"{seconds:8.1f} s  {name}" for name, seconds in by_time[:SLOWEST]]
    over = [(name, seconds) for name, seconds in by_time if seconds > LIMIT_S]
    lines += ["", f"{len(over)} over {LIMIT_S:.0f} s without a mark" + (":" if over else "")]
    lines += [f"{seconds:8.1f} s  {name}" for name, seconds in over]
    return "\n".join(lines)


if __name__ == "__main__":
    print(summary(durations(Path(sys.argv[1]))))  # noqa: T201
