"""Offsets of a streaming read: their JSON form, and what they say about lost entries. No I/O.

Spark stores an offset as JSON, ``{queue: {"id": …, "added": …, "lost": …}}``:

    id      every entry up to here was delivered
    added   entries ever added to the stream by then; only if *id* was its last entry
    lost    entries removed before they were read; only if there are any

Without *added*, *id* is the one just before an entry that existed. So lost entries after an offset
can always be detected: either that following entry is missing, or more entries have been removed
than had been added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tambomq.spark.core.stream_cuts import LAST, number, text

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_MAX: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far one queue was read."""

    id: int = 0
    added: int | None = None
    lost: int = 0


START: Final = StreamOffset()
"""Nothing was read yet: all entries are new."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """The state of a stream; all zero if it does not exist."""

    first: int | None = None
    last: int = 0
    """The last id ever added, even if its entry was removed."""
    length: int = 0
    added: int = 0

    @property
    def removed(self) -> int:
        """How many entries were trimmed or deleted."""
        return self.added - self.length

    @property
    def end(self) -> StreamOffset:
        """The offset after all entries."""
        return StreamOffset(self.last, self.added)


# ── JSON, as Spark stores them ───────────────────────────────────────────────


def encode(offsets: Mapping[str, StreamOffset]) -> dict[str, Any]:
    """Return *offsets* as JSON. Equal offsets give equal text: Spark compares the text."""
    return {queue: _encode(offsets[queue]) for queue in sorted(offsets)}


def decode(stored: Mapping[str, Any]) -> dict[str, StreamOffset]:
    """Return offsets by queue; raise `ValueError` if *stored* is invalid."""
    return {queue: _decode(queue, value) for queue, value in stored.items()}


def starting(given: str) -> str | dict[str, StreamOffset | str]:
    """Parse ``startingOffsets``: `EARLIEST`, `LATEST`, or one of them or an offset by queue.

    Raises `ValueError` for anything else.
    """
    if given.lower() in (EARLIEST, LATEST):
        return given.lower()
    found = json.loads(given)
    if not isinstance(found, dict):
        raise ValueError(f"no offsets: {given}")  # noqa: TRY004  (the text is wrong, no type)
    return {
        queue: value if value in (EARLIEST, LATEST) else _decode(queue, value)
        for queue, value in found.items()
    }


def lag_ms(stored: Mapping[str, Any], latest: Mapping[str, Any]) -> int:
    """Return the lag, in milliseconds, of the queue that is furthest behind.

    Takes the ``endOffset`` and ``latestOffset`` of a query's progress.
    """
    now, then = decode(latest), decode(stored)
    behind = [
        (offset.id >> 64) - (then[queue].id >> 64)
        for queue, offset in now.items()
        if queue in then and offset.id > then[queue].id
    ]
    return max(behind, default=0)


def _encode(offset: StreamOffset) -> dict[str, Any]:
    value: dict[str, Any] = {"id": text(offset.id)}
    if offset.added is not None:
        value["added"] = offset.added
    if offset.lost:
        value["lost"] = offset.lost
    return value


def _decode(queue: str, value: Any) -> StreamOffset:
    fields = {"id": value} if isinstance(value, str) else value
    if not isinstance(fields, dict) or not fields.keys() <= {"id", "added", "lost"}:
        raise ValueError(f"no offset of queue {queue!r}: {value!r}")
    id, added, lost = fields.get("id"), fields.get("added"), fields.get("lost", 0)
    if not _is_count(lost) or not (added is None or _is_count(added)):
        raise ValueError(f"no offset of queue {queue!r}: {value!r}")
    return StreamOffset(_id(queue, id), added, lost)


def _id(queue: str, id: Any) -> int:
    numbers = id.split("-") if isinstance(id, str) else []
    if len(numbers) not in (1, 2) or not all(
        part.isascii() and part.isdecimal() for part in numbers
    ):
        raise ValueError(f"no entry id of queue {queue!r}: {id!r}")
    if max(map(int, numbers)) >> 64:
        raise ValueError(f"no entry id of queue {queue!r}: {id!r}")
    return number(id)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX


# ── what they mean ───────────────────────────────────────────────────────────


def lost(offset: StreamOffset, state: StreamState) -> int:
    """Return how many entries after *offset* were removed, at least."""
    if not offset.id or state.last <= offset.id:
        return 0
    if state.first is not None and state.first <= offset.id + 1:
        return 0
    if offset.added is None:
        # The following entry was removed; how many with it is unknown.
        return 1
    # No entry up to the offset is left, so all that had been added by then were removed.
    behind = state.removed - offset.added
    # Negative: the stream was deleted and recreated, so all its removed entries came later.
    return behind if behind >= 0 else state.removed


def backlog_bound(offset: StreamOffset, state: StreamState) -> int:
    """Return an upper bound of the entries after *offset*; 0 only if there are none.

    Exact, unless entries were removed or the offset has no count.
    """
    if state.last <= offset.id:
        return 0
    if offset.added is not None and offset.added < state.added:
        return max(1, min(state.added - offset.added, state.length))
    # At least 1: even with nothing left to read, the offset has to advance.
    return max(1, state.length)


def share_rows(
    offsets: Mapping[str, StreamOffset], backlog: Mapping[str, int], max_rows: int
) -> dict[str, int]:
    """Divide *max_rows* evenly among queues, but give none more than its *backlog*."""
    due = [queue for queue, count in backlog.items() if count]
    if len(due) > max_rows:
        # Take those furthest behind; the others follow when these have caught up.
        due = sorted(due, key=lambda queue: (offsets.get(queue, START).id, queue))[:max_rows]
    shares: dict[str, int] = {}
    left = max_rows
    for index, queue in enumerate(sorted(due, key=lambda queue: (backlog[queue], queue))):
        shares[queue] = min(backlog[queue], left // (len(due) - index))
        left -= shares[queue]
    return shares


def before(next_id: int, goal: StreamOffset) -> StreamOffset:
    """Return the offset just before the entry *next_id*; *goal* if that comes first."""
    return goal if next_id > goal.id else StreamOffset(next_id - 1)


def advance(start: StreamOffset, end: StreamOffset, lost: int) -> StreamOffset:
    """Return *end*, never before *start*, with the count of *lost* entries added."""
    if end.id <= start.id:
        return start
    return replace(end, lost=start.lost + lost)


def clip(low: int, state: StreamState, high: int) -> tuple[int, int] | None:
    """Return the first and last possible id after *low* and up to *high*; `None` if none."""
    first = max(low + 1, LAST if state.first is None else state.first)
    last = min(high, state.last)
    return (first, last) if first <= last else None
