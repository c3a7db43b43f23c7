"""Journals to follow, and a follower that calls a reader as Spark does."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import redis
from pyspark.sql.streaming.datasource import ReadLimit

from tambomq.journal.keys import JournalKeys
from tambomq.spark.core.options import QueueSelector, RedisTarget
from tambomq.spark.formats.tambo.tables import JournalTable
from tambomq.spark.tail.options import TailOptions
from tambomq.spark.tail.reader import TailReader, TailTable

PROTOCOL = "kqueue"
JOURNAL = JournalTable(PROTOCOL)


def key(queue: str) -> str:
    return JournalKeys(PROTOCOL, queue).journal


def fill(db: redis.Redis, queue: str, bodies: Iterable[object], *, ids: Any = None) -> list[str]:
    """Add entries to a journal as any client would; with *ids* of one's own, or the server's."""
    pipe = db.pipeline(transaction=False)
    for body in bodies:
        fields: Any = {"e": "sent", "ts": "1700000000000", "d": str(body)}
        pipe.xadd(key(queue), fields, id=next(ids) if ids else "*")
    return [id.decode() for id in pipe.execute()]


def spread(start_ms: int, step_ms: int) -> Iterator[str]:
    """Ids at regular times."""
    while True:
        yield f"{start_ms}-0"
        start_ms += step_ms


def reader(url: str, *queues: str, table: TailTable = JOURNAL, **how: Any) -> TailReader:
    how.setdefault("look_every_s", 0)
    return TailReader(table, RedisTarget(url), QueueSelector(queues), TailOptions(**how))


class Query:
    """What Spark does with a reader: plans, reads in workers, writes offsets down as JSON."""

    def __init__(self, source: TailReader) -> None:
        self.source = source
        self.offset = _noted(source.initialOffset())
        self.batches: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def batch(self, limit: ReadLimit | None = None) -> list[pa.RecordBatch] | None:
        """Return the next batch; `None` if nothing is new."""
        limit = limit or self.source.getDefaultReadLimit()
        end = _noted(self.source.latestOffset(self.offset, limit))
        if self.batches and end == self.offset:
            return None
        self.batches.append((self.offset, end))
        self.offset = end
        return self.again(-1)

    def again(self, redis_target: int) -> list[pa.RecordBatch]:
        """Read a batch that is in the log, as after a crash."""
        partition_count = self.source.partitions(*self.batches[redis_target])
        sent = pickle.dumps((self.source, partition_count))
        worker, tasks = pickle.loads(sent)  # noqa: S301  (as Spark's workers do, and our own)
        return [rows for task in tasks for rows in worker.read(task)]

    def all(self) -> list[list[pa.RecordBatch]]:
        """Return all batches until nothing is new."""
        found = []
        while (rows := self.batch()) is not None:
            found.append(rows)
        return found

    def restarted(self, source: TailReader) -> Query:
        """Return the same query with another reader, from the same checkpoint."""
        other = Query.__new__(Query)
        other.source, other.offset, other.batches = source, self.offset, list(self.batches)
        return other


def column(rows: Iterable[pa.RecordBatch], name: str) -> list[Any]:
    return [value for batch in rows for value in batch.column(name).to_pylist()]


def bodies(rows: Iterable[pa.RecordBatch]) -> list[str]:
    return [body.decode() for body in column(rows, "body")]


def _noted(offset: dict[str, Any]) -> dict[str, Any]:
    noted: dict[str, Any] = json.loads(json.dumps(offset))
    return noted
