"""RSMQ's tables: messages where they are, and queues with their settings and counters.

What stays where it is while it is read is read once. A message that is received meanwhile moves to
a later time: it may be seen there again, or be missed if those who read there have passed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from tambomq.errors import InvalidFormat, QueueCorrupt, QueueNotFound
from tambomq.rsmq import queue_ops, scan_ops
from tambomq.rsmq.keys import Keys, check_queue
from tambomq.rsmq.replies import moment, tally
from tambomq.spark import schemas
from tambomq.spark.columns import Columns, constant
from tambomq.spark.paging import Pace
from tambomq.spark.table import Bounds, Range
from tambomq.store.sync import Store

_MOMENT_LETTERS: Final = 10
_VISIBLE: Final = frozenset(("visible",))


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of queues. *low* and *high* of a range are scores; the last is not in it."""

    keys: Keys

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.RSMQ_MESSAGES

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues."""
        return names(store, self.keys)

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:
        """Return ranges of scores with about as many messages each, and at least a page."""
        if not store.run(scan_ops.exists(self.keys, queue)):
            raise QueueNotFound(queue)
        low, high = _scores(bounds)
        count = store.run(scan_ops.count(self.keys, queue, low, high))
        # An empty queue is a range too: Spark may come back to it with the same plan.
        pieces = max(1, min(pieces, -(-count // scan_ops.COUNT)))
        places = [count * each // pieces for each in range(1, pieces)]
        found = store.run_all(
            [scan_ops.score_at(self.keys, queue, low, high, place) for place in places]
        )
        edges = sorted({score.decode() for score in found if score is not None}, key=float)
        lows, highs = [low, *edges], [*(f"({edge}" for edge in edges), high]
        return [Range(queue, *each) for each in zip(lows, highs, strict=True)]

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield messages in the order of their becoming visible."""
        now, pace = store.run(scan_ops.now()), Pace(scan_ops.COUNT)
        if bounds.only.get("state") == _VISIBLE and float(part.high.lstrip("(")) > now:
            # What becomes visible between plan and read is wanted too, so only here is it known.
            part = replace(part, high=f"({now + 1}")
        for ids, scores in self._pages(store, part):
            first = 0
            while first < len(ids):
                end = first + pace.count
                yield self._rows(store, part.queue, ids[first:end], scores[first:end], now, pace)
                first = end

    def _pages(self, store: Store, part: Range) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield ids and scores, each id once: messages are ordered by score, then by id."""
        low, skip, last = part.low, 0, (float("-inf"), b"")
        while True:
            ids, scores = store.run(scan_ops.page(self.keys, part.queue, low, part.high, skip))
            order = [(float(score), id) for score, id in zip(scores, ids, strict=True)]
            # A page begins with what the last one ended with. If it does not, some of those that
            # are skipped have gone, and others, not seen yet, are skipped in their place.
            if skip and (not order or order[0] > last):
                skip //= 2
                continue
            new = bisect_right(order, last)
            if new < len(ids):
                yield ids[new:], scores[new:]
            if len(ids) < scan_ops.COUNT:
                return
            last = max(last, order[-1])
            if low == scores[-1].decode():
                skip += len(ids) - 1
            else:
                low, skip = scores[-1].decode(), scores.count(scores[-1]) - 1

    def _rows(
        self,
        store: Store,
        queue: str,
        ids: list[bytes],
        scores: list[bytes],
        now: int,
        pace: Pace,
    ) -> pa.RecordBatch:
        found = store.run(scan_ops.contents(self.keys, queue, ids))
        pace.note(found[::3])
        rows = list(
            zip(ids, map(moment, scores), found[::3], found[1::3], found[2::3], strict=True)
        )
        if None in found[::3]:
            # Damaged if it is still there, deleted meanwhile if it is not.
            there = store.run(scan_ops.present(self.keys, queue, ids))
            rows = [row for row, is_there in zip(rows, there, strict=True) if is_there]
        received = [tally(row[3]) for row in rows]
        return self.columns.batch(
            queue=constant(queue, len(rows)),
            id=[row[0] for row in rows],
            body=[row[2] for row in rows],
            sent_at=[_sent_ms(row[0]) for row in rows],
            visible_at=[row[1] for row in rows],
            state=[
                "visible" if row[1] <= now else "hidden" if rc else "delayed"
                for row, rc in zip(rows, received, strict=True)
            ],
            rc=received,
            first_received_at=[tally(row[4]) or None for row in rows],
        )


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues themselves, one row each."""

    keys: Keys

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.RSMQ_QUEUES

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues."""
        return names(store, self.keys)

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:  # noqa: ARG002  (a row is one piece)
        """Return the queue itself."""
        if not store.run(scan_ops.exists(self.keys, queue)):
            raise QueueNotFound(queue)
        return [Range(queue)]

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (as above)
        """Yield its row; one that was deleted meanwhile, or is damaged, has none."""
        try:
            found = store.run(queue_ops.attributes(self.keys, part.queue))
        except (QueueNotFound, QueueCorrupt):
            return
        yield self.columns.batch(
            queue=[part.queue],
            vt_s=[float(found.vt)],
            delay_s=[float(found.delay)],
            maxsize=[found.maxsize],
            created_at=[found.created * 1000],
            modified_at=[found.modified * 1000],
            total_sent=[found.totalsent],
            total_received=[found.totalrecv],
            messages=[found.msgs],
            hidden_messages=[found.hiddenmsgs],
        )


def names(store: Store, keys: Keys) -> Iterator[str]:
    """Yield all queues of a namespace, each once or, if the set changes meanwhile, twice.

    What no queue can be called is left out.
    """
    cursor = b"0"
    while True:
        cursor, found = store.run(scan_ops.names(keys, cursor))
        for name in found:
            with suppress(InvalidFormat):
                yield check_queue(name.decode(errors="replace"))
        if cursor == b"0":
            return


def _scores(bounds: Bounds) -> tuple[str, str]:
    low, high = bounds.lowest.get("visible_at"), bounds.highest.get("visible_at")
    # A score with a fraction is shown as a whole millisecond, the one nearer to 1970.
    return (
        "-inf" if low is None else f"({low - 1}",
        "+inf" if high is None else f"({high + 1}",
    )


def _sent_ms(id: bytes) -> int | None:
    try:
        return int(id[:_MOMENT_LETTERS], 36) // 1000
    except ValueError:
        return None
