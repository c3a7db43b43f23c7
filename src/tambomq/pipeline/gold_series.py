"""The last hours of gold as lines of a chart, read from its files with pyarrow. No Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tambomq.console.model import Series

GOLD_TABLE: Final = "gold/minutes"
HOURS: Final = 3
MAX_FILES: Final = 500
_MINUTE_MS: Final = 60_000
_COLUMNS: Final = {"in": "entered", "out": "done", "failed": "failed", "dead": "dead"}
"""Lines of the chart, and the columns they are the sums of."""


def gold_series(files: Sequence[Path], now_ms: int, hours: int = HOURS) -> Series | None:
    """Return messages a minute of all queues; `None` if there are none in the last *hours*.

    The newest `MAX_FILES` of *files* are read. Raises `ModuleNotFoundError` without pyarrow,
    `OSError` and `ValueError` if a file cannot be read.
    """
    import pyarrow.parquet  # noqa: PLC0415  (an extra)

    last = now_ms // _MINUTE_MS
    first = last - hours * 60 + 1
    days = {_day(minute * _MINUTE_MS) for minute in (first, last)}
    sums: dict[str, dict[int, int]] = {line: defaultdict(int) for line in _COLUMNS}
    for path in [path for path in files if path.parent.name in days][-MAX_FILES:]:
        table = pyarrow.parquet.read_table(
            path, columns=["minute", *_COLUMNS.values()], partitioning=None
        )
        minutes = [
            None if each is None else int(each.timestamp()) // 60
            for each in table["minute"].to_pylist()
        ]
        for line, column in _COLUMNS.items():
            for minute, count in zip(minutes, table[column].to_pylist(), strict=True):
                if minute is not None and first <= minute <= last:
                    sums[line][minute] += count or 0
    if not any(sums.values()):
        return None
    times = range(first, last + 1)
    return Series(
        times_ms=[minute * _MINUTE_MS for minute in times],
        values={line: [float(found.get(m, 0)) for m in times] for line, found in sums.items()},
    )


def _day(at_ms: int) -> str:
    return f"date={datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"
