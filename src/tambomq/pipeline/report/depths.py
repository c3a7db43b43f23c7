"""The report's backlog from depth snapshots, and the queues that are not followed."""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tambomq.pipeline.report.figures import Figures, UnfollowedQueue, order, with_depths

MAX_UNFOLLOWED: Final = 500
"""Queues listed that are not followed."""


def counted(found: Figures, depths: DataFrame) -> Figures:
    """Return *found* with the backlog of the last snapshots in *depths*."""
    at = f.unix_millis("at").alias("ms")
    last = f.max_by(f.struct(at, "backlog", "followed"), "at").alias("last")
    until = depths.where(f.unix_millis("at") < found.until_ms)
    rows = until.groupBy("protocol", "queue").agg(last).collect()
    if not rows:
        return found
    counted_ms = max(row.last.ms for row in rows)
    lines = with_depths(found.lines, {(row.protocol, row.queue): row.last.backlog for row in rows})
    others = [
        UnfollowedQueue(row.protocol, row.queue, row.last.backlog)
        for row in sorted(rows, key=lambda row: (-row.last.backlog, row.protocol, row.queue))
        # The last snapshot of a deleted queue is older.
        if not row.last.followed and row.last.ms == counted_ms
    ]
    return msgspec.structs.replace(
        found,
        lines=sorted(lines, key=order),
        backlog=sum(line.backlog for line in lines),
        counted_ms=counted_ms,
        unfollowed=others[:MAX_UNFOLLOWED],
    )
