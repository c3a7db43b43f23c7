"""Recurring jobs, as rows of the console's table."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import repeat as repeat_ops
from tambomq.chasqui.repeat import RepeatableMeta, RepeatPattern
from tambomq.console.model import ScheduleRow
from tambomq.console.words import duration_text
from tambomq.errors import StoreUnavailable, TamboError
from tambomq.store.aio import AsyncStore

MAX_OF_QUEUE: Final = 200
"""Recurring jobs of one queue that are listed: the next to fire."""
CHUNK: Final = 50
"""Queues that are read at a time."""


async def read_schedules(store: AsyncStore, names: Sequence[str], now_ms: int) -> list[ScheduleRow]:
    """Return the recurring jobs of ChasquiMQ queues, the next first. Raises `StoreUnavailable`."""
    rows = []
    for first in range(0, len(names), CHUNK):
        chunk = names[first : first + CHUNK]
        plans = [store.follow(repeat_ops.listing(Keys(name), MAX_OF_QUEUE)) for name in chunk]
        found = await asyncio.gather(*plans, return_exceptions=True)
        for name, metas in zip(chunk, found, strict=True):
            if isinstance(metas, list):
                rows += [_row(name, meta, now_ms) for meta in metas]
            # Damaged queues are left out.
            elif isinstance(metas, StoreUnavailable) or not isinstance(metas, TamboError):
                raise metas
    return sorted(rows, key=lambda row: (row.next_ms or 0, row.queue, row.key))


def pattern_text(pattern: RepeatPattern) -> str:
    """Return a pattern as a person reads it: ``0 9 * * * (Europe/Berlin)``, ``every 15 m 00 s``."""
    if pattern.interval_ms is not None:
        return f"every {duration_text(pattern.interval_ms / 1000)}"
    zone = f" ({pattern.tz})" if pattern.tz else ""
    return f"{pattern.expression or ''}{zone}"


def _row(queue: str, meta: RepeatableMeta, now_ms: int) -> ScheduleRow:
    interval_ms = meta.pattern.interval_ms
    last_ms = meta.next_fire_ms - interval_ms if interval_ms and meta.fired else None
    return ScheduleRow(
        queue=f"chasqui:{queue}",
        key=meta.key,
        name=meta.job_name,
        pattern=pattern_text(meta.pattern),
        next_ms=meta.next_fire_ms,
        last_ms=last_ms,
        fired=meta.fired,
        note=_note(meta, now_ms),
    )


def _note(meta: RepeatableMeta, now_ms: int) -> str:
    overdue_s = (now_ms - meta.next_fire_ms) / 1000
    if overdue_s >= 10:  # noqa: PLR2004  (leaders take over within seconds)
        return f"It is due for {duration_text(overdue_s)}: no scheduler runs."
    notes = []
    if meta.limit is not None:
        notes.append(f"Fires {meta.limit:,} times at most.")
    if meta.unless_queued:
        notes.append("Skips a fire while its last job is in the queue.")
    return " ".join(notes)
