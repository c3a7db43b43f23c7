"""The report's backlog as the queues themselves had it, and which of them are not followed."""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tambomq.pipeline.figures import Figures, Unfollowed, order, with_depths

MOST: Final = 500
"""So many queues are told of that are not followed."""


def counted(found: Figures, depths: DataFrame) -> Figures:
    """Return *found* with the backlog that the last of *depths* say."""
    at = f.unix_millis("at").alias("ms")
    last = f.max_by(f.struct(at, "backlog", "followed"), "at").alias("last")
    until = depths.where(f.unix_millis("at") < found.until_ms)
    rows = until.groupBy("protocol", "queue").agg(last).collect()
    if not rows:
        return found
    counted_ms = max(row.last.ms for row in rows)
    lines = with_depths(found.lines, {(row.protocol, row.queue): row.last.backlog for row in rows})
    others = [
        Unfollowed(row.protocol, row.queue, row.last.backlog)
        for row in sorted(rows, key=lambda row: (-row.last.backlog, row.protocol, row.queue))
        # A queue that is gone has an older snapshot.
        if not row.last.followed and row.last.ms == counted_ms
    ]
    return msgspec.structs.replace(
        found,
        lines=sorted(lines, key=order),
        backlog=sum(line.backlog for line in lines),
        counted_ms=counted_ms,
        unfollowed=others[:MOST],
    )
