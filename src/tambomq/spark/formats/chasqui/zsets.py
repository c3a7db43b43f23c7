"""ChasquiMQ's sorted sets and results as tables: delayed jobs, repeatable specs, return values.

Ranges of the sorted sets are of scores, as ZRANGE takes them; a result has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tambomq.chasqui.bulk import scan as scan_ops
from tambomq.chasqui.bulk.scan import COUNT
from tambomq.chasqui.keys import Keys
from tambomq.errors import WrongType
from tambomq.spark.core import schemas
from tambomq.spark.core.columns import Columns
from tambomq.spark.core.paging import PageSizer
from tambomq.spark.core.table import ColumnBounds, Range
from tambomq.spark.formats.chasqui import columns as chasqui_rows
from tambomq.spark.formats.chasqui.columns import Values
from tambomq.spark.formats.chasqui.streams import filled, log_skipped, names, undamaged
from tambomq.store.sync import Store

_COLUMNS: Final = {"delayed": schemas.CHASQUI_DELAYED, "repeat": schemas.CHASQUI_REPEAT}
_TIMES: Final = {"delayed": "due_at", "repeat": "next_fire_at"}


@dataclass(frozen=True, slots=True)
class SortedSetTable:
    """A sorted set of each queue: ``delayed`` or ``repeat``."""

    kind: str
    show_damaged: bool = True

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return _COLUMNS[self.kind]

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues."""
        return names(store)

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:
        """Return ranges of scores with about equal member counts."""
        zset, time = self._zset(queue), _TIMES[self.kind]
        low = str(bounds.lowest.get(time, "-inf"))
        # Scores may have fractions; they are shown as whole milliseconds.
        high = f"({bounds.highest[time] + 1}" if time in bounds.highest else "+inf"
        count = store.run(scan_ops.count(zset, low, high))
        indexes = {count * each // pieces for each in range(1, pieces)} if count > COUNT else ()
        found = store.run_all(
            [scan_ops.score_at(zset, low, high, index) for index in sorted(indexes)]
        )
        edges = sorted({score for score in found if score is not None})
        lows, highs = [low, *map(str, edges)], [*(f"({edge}" for edge in edges), high]
        return [Range(queue, *each) for each in zip(lows, highs, strict=True)]

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:
        """Yield members, the earliest first."""
        zset, sizer, skipped = self._zset(part.queue), PageSizer(COUNT), 0
        low, skip = part.low, 0
        while True:
            asked = sizer.count
            members, scores = store.run(scan_ops.members(zset, low, part.high, skip, asked))
            if not members:
                break
            sizer.note(members)
            batch = filled(self.columns, part.queue, self._values(store, part, members, scores))
            sound = batch if self.show_damaged else undamaged(batch)
            skipped += len(batch) - len(sound)
            if _may_have(sound, bounds):
                yield sound
            if len(members) < asked:
                break
            # The next page begins at the last score, and skips the members already read.
            last = scores[-1].decode()
            same = scores.count(scores[-1])
            low, skip = last, skip + same if low == last else same
        log_skipped(skipped, part.queue, self.kind)

    def _zset(self, queue: str) -> str:
        keys = Keys(queue)
        return keys.delayed if self.kind == "delayed" else keys.repeat

    def _values(
        self, store: Store, part: Range, members: Sequence[bytes], scores: Sequence[bytes]
    ) -> Values:
        if self.kind == "delayed":
            return chasqui_rows.delayed(members, scores)
        keys = Keys(part.queue)
        # A key that is not UTF-8 has no spec.
        specs = [scan_ops.spec(keys, key.decode("utf-8", "replace")) for key in members]
        found = store.outcomes(specs)
        for each in found:
            if isinstance(each, Exception) and not isinstance(each, WrongType):
                raise each
        bodies = [None if isinstance(each, WrongType) else each for each in found]
        return chasqui_rows.specs(members, scores, bodies)


@dataclass(frozen=True, slots=True)
class ResultTable:
    """The stored return values of each queue's handlers.

    They are found by scanning all keys of the server, once per queue, unless a filter names ids.
    """

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.CHASQUI_RESULTS

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues."""
        return names(store)

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:  # noqa: ARG002  (a scan cannot be split)
        """Return the queue as a whole."""
        return [Range(queue)]

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:
        """Yield results in no order, each once (twice if Redis rehashes meanwhile)."""
        keys = Keys(part.queue)
        if "id" in bounds.only:
            ids = [id for id in bounds.only["id"] if isinstance(id, str)]
            yield from self._rows(store, keys, ids)
            return
        cursor = b"0"
        while True:
            cursor, ids = store.run(scan_ops.results_page(keys, cursor))
            yield from self._rows(store, keys, ids)
            if cursor == b"0":
                return

    def _rows(self, store: Store, keys: Keys, ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        sizer = PageSizer(COUNT)
        while ids:
            now, ids = ids[: sizer.count], ids[sizer.count :]
            values = store.run_all([scan_ops.result(keys, id) for id in now])
            left = store.run_all([scan_ops.result_expiry(keys, id) for id in now])
            now_ms = store.run(scan_ops.now())
            sizer.note(values)
            rows = [
                (id, value, None if ms is None else now_ms + ms)
                for id, value, ms in zip(now, values, left, strict=True)
                if value is not None
            ]
            if rows:
                columns = zip(("id", "payload", "expires_at"), zip(*rows, strict=True), strict=True)
                yield filled(self.columns, keys.queue, dict(columns))


def _may_have(batch: pa.RecordBatch, bounds: ColumnBounds) -> bool:
    """Whether a row may be wanted, as far as names say."""
    wanted = bounds.only.get("name")
    return wanted is None or not wanted.isdisjoint(batch.column("name").to_pylist())
