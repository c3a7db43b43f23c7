"""RSMQ's tables: messages, and queues with their settings and counters.

A message that does not change during the read is read once. One that is received meanwhile moves to
a later score: it may be read there again, or be missed if that range has been read already.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, compress, repeat
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tambomq.errors import InvalidFormat, QueueCorrupt, QueueNotFound
from tambomq.rsmq.bulk import scan as scan_ops
from tambomq.rsmq.keys import Keys, check_queue
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.rsmq.ops.replies import score_to_ms, to_count
from tambomq.spark.core import schemas
from tambomq.spark.core.columns import BYTES, LONG, Columns, constant
from tambomq.spark.core.cursors import scanned
from tambomq.spark.core.paging import PageSizer, merge_pages
from tambomq.spark.core.stream_columns import whole_numbers
from tambomq.spark.core.table import ColumnBounds, Range
from tambomq.store.sync import Store

_MOMENT_LETTERS: Final = 10
_VISIBLE: Final = frozenset(("visible",))
# `score_to_ms` clamps to ± this.
_FOREVER: Final = 2**53


@dataclass(frozen=True, slots=True)
class MessageTable:
    """The messages of queues. *low* and *high* of a range are scores; *high* is exclusive."""

    keys: Keys

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.RSMQ_MESSAGES

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues."""
        return names(store, self.keys)

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:
        """Return ranges of scores with about equal message counts, at least a page each."""
        if not store.run(scan_ops.exists(self.keys, queue)):
            raise QueueNotFound(queue)
        low, high = _scores(bounds)
        if pieces == 1:
            return [Range(queue, low, high)]
        count = store.run(scan_ops.count(self.keys, queue, low, high))
        # An empty queue gets a range too: Spark may reuse the plan later.
        pieces = max(1, min(pieces, -(-count // scan_ops.COUNT)))
        indexes = [count * each // pieces for each in range(1, pieces)]
        found = store.run_all(
            [scan_ops.score_at(self.keys, queue, low, high, index) for index in indexes]
        )
        edges = sorted({score.decode() for score in found if score is not None}, key=float)
        lows, highs = [low, *edges], [*(f"({edge}" for edge in edges), high]
        return [Range(queue, *each) for each in zip(lows, highs, strict=True)]

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:
        """Yield messages in the order in which they become visible."""
        now, sizer = store.run(scan_ops.now()), PageSizer(scan_ops.COUNT)
        if bounds.only.get("state") == _VISIBLE and float(part.high.lstrip("(")) > now:
            # Evaluated at read time, to include messages that became visible after planning.
            part = replace(part, high=f"({now + 1}")
        for rows in merge_pages(self._rows(store, part, sizer), sizer):
            yield self._batch(part.queue, rows, now)

    def _pages(self, store: Store, part: Range) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield ids and scores, each id once: messages are ordered by score, then by id."""
        low, skip, last = part.low, 0, (float("-inf"), b"")
        while True:
            ids, scores = store.run(scan_ops.page(self.keys, part.queue, low, part.high, skip))
            order = _Order(ids, scores)
            # A page must begin with the last message of the page before. If it does not, skipped
            # messages were removed, and unread ones were skipped in their place: skip fewer.
            if skip and (not ids or order[0] > last):
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

    def _rows(self, store: Store, part: Range, sizer: PageSizer) -> Iterator[_Messages]:
        """Yield messages, page by page."""
        has_received = False
        for ids, scores in self._pages(store, part):
            first = 0
            while first < len(ids):
                some = slice(first, first + sizer.count)
                first = some.stop
                values = self._values(store, part.queue, ids[some], has_received=has_received)
                rows = _Messages(ids[some], scores[some], *values)
                has_received = rows.has_received
                if None in rows.bodies:
                    # Damaged if it is still there, deleted meanwhile if it is not.
                    there = store.run(scan_ops.present(self.keys, part.queue, ids[some]))
                    rows = _Messages(*([*compress(column, there)] for column in rows.columns))
                if len(rows):
                    yield rows
                sizer.note(values[0])

    def _values(
        self, store: Store, queue: str, ids: Sequence[bytes], *, has_received: bool
    ) -> tuple[list[bytes | None], list[bytes | None], list[bytes | None]]:
        """Return bodies, receive counts and times of first receive, all of the same moment.

        Most queues have long runs of messages that nobody has received: those have no time, and
        asking for it takes a third of the server's work. *has_received* says what to expect.
        """
        if not has_received:
            found = store.run(scan_ops.counted_bodies(self.keys, queue, ids))
            bodies, counts = found[::2], found[1::2]
            if counts.count(None) == len(counts):
                return bodies, counts, counts
        found = store.run(scan_ops.contents(self.keys, queue, ids))
        return found[::3], found[1::3], found[2::3]

    def _batch(self, queue: str, rows: _Messages, now: int) -> pa.RecordBatch:
        visible, received = _moments(rows.scores), _tallies(rows.counts)
        waiting = pc.if_else(pc.greater(received, 0), "hidden", "delayed")
        return self.columns.batch(
            queue=constant(queue, len(rows)),
            id=rows.ids,
            body=rows.bodies,
            sent_at=sent_ms(rows.ids),
            visible_at=visible,
            state=pc.if_else(pc.less_equal(visible, now), "visible", waiting),
            rc=received,
            first_received_at=first_ms(rows.firsts),
        )


class _Messages:
    """Messages, by column: ids, scores, bodies, receive counts and times of first receive."""

    def __init__(self, *columns: list[Any]) -> None:
        self.columns = columns
        self.ids, self.scores, self.bodies, self.counts, self.firsts = columns

    @property
    def has_received(self) -> bool:
        """Whether one of them was received before."""
        return self.counts.count(None) < len(self.counts)

    def __len__(self) -> int:
        return len(self.ids)

    def __add__(self, other: _Messages) -> _Messages:
        pairs = zip(self.columns, other.columns, strict=True)
        return _Messages(*(own + others for own, others in pairs))


@dataclass(frozen=True, slots=True)
class QueueTable:
    """The queues themselves, one row each."""

    keys: Keys

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.RSMQ_QUEUES

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues."""
        return names(store, self.keys)

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:  # noqa: ARG002  (a row is one piece)
        """Return the queue itself."""
        if not store.run(scan_ops.exists(self.keys, queue)):
            raise QueueNotFound(queue)
        return [Range(queue)]

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (as above)
        """Yield its row; none if it was deleted meanwhile, or is damaged."""
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
    """Yield all queues of a namespace, each once (twice if the set changes meanwhile).

    Invalid names are left out.
    """
    for name in chain.from_iterable(scanned(store, partial(scan_ops.names, keys))):
        with suppress(InvalidFormat):
            yield check_queue(name.decode(errors="replace"))


def _scores(bounds: ColumnBounds) -> tuple[str, str]:
    low, high = bounds.lowest.get("visible_at"), bounds.highest.get("visible_at")
    # A score with a fraction is shown rounded towards 1970.
    return (
        "-inf" if low is None else f"({low - 1}",
        "+inf" if high is None else f"({high + 1}",
    )


class _Order(Sequence[tuple[float, bytes]]):
    """Sort keys (score, id) of messages, computed only where they are accessed."""

    def __init__(self, ids: Sequence[bytes], scores: Sequence[bytes]) -> None:
        self._ids, self._scores = ids, scores

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        return float(self._scores[index]), self._ids[index]


def _moments(scores: Sequence[bytes]) -> pa.Array:
    """Return scores as milliseconds; fast if all are whole numbers, as they mostly are."""
    found = whole_numbers(pa.array(scores, BYTES))
    if found is not None:
        ends = pc.min_max(found).as_py()
        if -_FOREVER <= ends["min"] <= ends["max"] <= _FOREVER:
            return found
    return pa.array(map(score_to_ms, scores), LONG)


def _tallies(counts: Sequence[bytes | None]) -> pa.Array:
    if counts.count(None) == len(counts):
        return constant(0, len(counts))
    # The stored value may be too large for any count.
    return pa.array([min(to_count(each), _FOREVER) for each in counts], LONG)


def first_ms(values: Sequence[bytes | None]) -> Sequence[int | None]:
    """Return the times of first receive."""
    if values.count(None) == len(values):
        return constant(None, len(values))  # type: ignore[no-any-return]
    return [to_count(each) or None for each in values]


def sent_ms(ids: Sequence[bytes]) -> list[int | None]:
    """Return the send times encoded in message ids."""
    try:
        heads = [id[:_MOMENT_LETTERS] for id in ids]
        return [micros // 1000 for micros in map(int, heads, repeat(36))]
    except ValueError:
        return [_sent_ms(id) for id in ids]


def _sent_ms(id: bytes) -> int | None:
    try:
        return int(id[:_MOMENT_LETTERS], 36) // 1000
    except ValueError:
        return None
