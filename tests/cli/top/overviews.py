"""Overviews for tests of ``tambo top``."""

from __future__ import annotations

from typing import Any

from tambomq.console.model import Overview, QueueRow, RedisStatus, Series, Totals

REDIS = RedisStatus(ok=True, url="redis://127.0.0.1:6379/0", version="Valkey 9.1.2", latency_ms=0.3)


def row(queue: str, depth: int = 0, **more: Any) -> QueueRow:
    protocol, _, name = queue.partition(":")
    known: Any = protocol
    return QueueRow(queue=queue, protocol=known, name=name, depth=depth, **more)


def overview(*rows: QueueRow, redis: RedisStatus = REDIS) -> Overview:
    totals = Totals(
        in_per_s=sum(each.in_per_s for each in rows),
        out_per_s=sum(each.out_per_s for each in rows),
        failed_per_s=0,
        dead=0,
        dead_last_hour=None,
        backlog=sum(each.depth for each in rows),
        workers=0,
    )
    series = Series(times_ms=[], values={})
    return Overview(at_ms=0, redis=redis, totals=totals, throughput=series, queues=list(rows))
