"""ChasquiMQ's sorted sets and results as tables: delayed jobs, repeatable specs, return values.

Ranges of the sorted sets are of scores, as ZRANGE takes them; a result has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tambomq.chasqui import scan_ops
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.scan_ops import COUNT
from tambomq.errors import WrongType
from tambomq.spark import chasqui_rows, schemas
from tambomq.spark.chasqui_rows import Values
from tambomq.spark.chasqui_tables import filled, names, tell_skipped, undamaged
from tambomq.spark.columns import Columns
from tambomq.spark.paging import Pace
from tambomq.spark.table import Bounds, Range
from tambomq.store.sync import Store

_COLUMNS: Final = {"delayed": schemas.CHASQUI_DELAYED, "repeat": schemas.CHASQUI_REPEAT}
_TIMES: Final = {"delayed": "due_at", "repeat": "next_fire_at"}


@dataclass(frozen=True, slots=True)
class Scored:
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

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:
        """Return ranges of scores with about as many members each."""
        zset, time = self._zset(queue), _TIMES[self.kind]
        low = str(bounds.lowest.get(time, "-inf"))
        # A score may lie within a millisecond, and is shown as one.
        high = f"({bounds.highest[time] + 1}" if time in bounds.highest else "+inf"
        count = store.run(scan_ops.count(zset, low, high))
        places = {count * each // pieces for each in range(1, pieces)} if count > COUNT else ()
        found = store.run_all(
            [scan_ops.score_at(zset, low, high, place) for place in sorted(places)]
        )
        edges = sorted({score for score in found if score is not None})
        lows, highs = [low, *map(str, edges)], [*(f"({edge}" for edge in edges), high]
        return [Range(queue, *each) for each in zip(lows, highs, strict=True)]

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield members, the first to come first."""
        zset, pace, skipped = self._zset(part.queue), Pace(COUNT), 0
        low, skip = part.low, 0
        while True:
            asked = pace.count
            members, scores = store.run(scan_ops.members(zset, low, part.high, skip, asked))
            if not members:
                break
            pace.note(members)
            batch = filled(self.columns, part.queue, self._values(store, part, members, scores))
            sound = batch if self.show_damaged else undamaged(batch)
            skipped += len(batch) - len(sound)
            if _may_have(sound, bounds):
                yield sound
            if len(members) < asked:
                break
            # The next page begins with the last score of this one, and skips what it had of it.
            last = scores[-1].decode()
            same = scores.count(scores[-1])
            low, skip = last, skip + same if low == last else same
        tell_skipped(skipped, part.queue, self.kind)

    def _zset(self, queue: str) -> str:
        keys = Keys(queue)
        return keys.delayed if self.kind == "delayed" else keys.repeat

    def _values(
        self, store: Store, part: Range, members: Sequence[bytes], scores: Sequence[bytes]
    ) -> Values:
        if self.kind == "delayed":
            return chasqui_rows.delayed(members, scores)
        keys = Keys(part.queue)
        # A key that is no UTF-8 is nobody's: there is no such spec.
        specs = [scan_ops.spec(keys, key.decode("utf-8", "replace")) for key in members]
        found = store.outcomes(specs)
        for each in found:
            if isinstance(each, Exception) and not isinstance(each, WrongType):
                raise each
        bodies = [None if isinstance(each, WrongType) else each for each in found]
        return chasqui_rows.specs(members, scores, bodies)


@dataclass(frozen=True, slots=True)
class Results:
    """What the handlers of each queue returned and is still kept.

    They are found by going through all keys of the server, once for each queue; unless a filter
    says which ids are wanted.
    """

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.CHASQUI_RESULTS

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues."""
        return names(store)

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:  # noqa: ARG002  (nobody knows where they are)
        """Return the queue as a whole."""
        return [Range(queue)]

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield results in no order, each once or, where the server moves keys about, twice."""
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
        pace = Pace(COUNT)
        while ids:
            now, ids = ids[: pace.count], ids[pace.count :]
            values = store.run_all([scan_ops.result(keys, id) for id in now])
            left = store.run_all([scan_ops.result_expiry(keys, id) for id in now])
            now_ms = store.run(scan_ops.now())
            pace.note(values)
            rows = [
                (id, value, None if ms is None else now_ms + ms)
                for id, value, ms in zip(now, values, left, strict=True)
                if value is not None
            ]
            if rows:
                columns = zip(("id", "payload", "expires_at"), zip(*rows, strict=True), strict=True)
                yield filled(self.columns, keys.queue, dict(columns))


def _may_have(batch: pa.RecordBatch, bounds: Bounds) -> bool:
    """Whether a row may be wanted, as far as names say."""
    wanted = bounds.only.get("name")
    return wanted is None or not wanted.isdisjoint(batch.column("name").to_pylist())
