"""Writes the last table, and what it was measured with, into the README."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- last table -->", "<!-- end of last table -->"


def surroundings(server: str, players: Iterable[str]) -> list[str]:
    """What a table depends on, a line each."""
    today = dt.datetime.now(tz=dt.UTC).date()
    return [
        f"measured on {today.isoformat()}",
        f"{platform.system()} {platform.release()}, {_processor()}, {os.cpu_count()} cores",
        f"server: {server}, no persistence, loopback",
        *players,
    ]


def write(table: str, around: Iterable[str], page: Path = PAGE) -> None:
    """Replace what stands between the markers of *page*."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has lost its markers {BEGIN} and {END}")
    listed = "\n".join(f"- {line}" for line in around)
    page.write_text(f"{before}{BEGIN}\n\n{listed}\n\n{table}\n\n{END}{after}")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
