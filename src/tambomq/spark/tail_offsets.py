"""How far a tail has come in each of its queues, and what that means. Asks nobody.

Spark keeps an offset as JSON, ``{queue: {"id": …, "added": …, "lost": …}}``:

    id      every entry up to here was delivered
    added   entries the stream had ever had by then; only where *id* was its last
    lost    entries that were removed before they were read; only where there are any

Where *added* is missing, *id* is the one just before an entry that was there. So it can always be
told later whether entries were lost behind a mark: it is the one that follows that is missing, or
more have been removed than there had been.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tambomq.spark.stream_cuts import LAST, number, text

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_MOST: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one queue was read."""

    id: int = 0
    added: int | None = None
    lost: int = 0


START: Final = Mark()
"""Nothing was read yet: whatever is there is new."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What Redis says of a stream; one that is not there has nothing and had nothing."""

    first: int | None = None
    last: int = 0
    """The last id ever given, whether or not its entry is still there."""
    length: int = 0
    added: int = 0

    @property
    def removed(self) -> int:
        """How many entries were trimmed or deleted."""
        return self.added - self.length

    @property
    def end(self) -> Mark:
        """The mark of who has read all."""
        return Mark(self.last, self.added)


# ── as Spark keeps them ──────────────────────────────────────────────────────


def written(marks: Mapping[str, Mark]) -> dict[str, Any]:
    """Return *marks* as an offset. Equal marks are equal text: Spark compares nothing else."""
    return {queue: _written(marks[queue]) for queue in sorted(marks)}


def read(offset: Mapping[str, Any]) -> dict[str, Mark]:
    """Return the marks of an offset; raise `ValueError` if it is none."""
    return {queue: _read(queue, value) for queue, value in offset.items()}


def starting(told: str) -> str | dict[str, Mark | str]:
    """Return where to begin: `EARLIEST`, `LATEST`, or which of them or which mark by queue.

    Raises `ValueError` for anything else.
    """
    if told.lower() in (EARLIEST, LATEST):
        return told.lower()
    found = json.loads(told)
    if not isinstance(found, dict):
        raise ValueError(f"no offsets: {told}")  # noqa: TRY004  (the text is wrong, no type)
    return {
        queue: value if value in (EARLIEST, LATEST) else _read(queue, value)
        for queue, value in found.items()
    }


def lag_ms(offset: Mapping[str, Any], latest: Mapping[str, Any]) -> int:
    """Return by how many milliseconds the queue that is furthest behind is behind.

    For the ``endOffset`` and ``latestOffset`` that a query's progress shows.
    """
    now, then = read(latest), read(offset)
    behind = [
        (mark.id >> 64) - (then[queue].id >> 64)
        for queue, mark in now.items()
        if queue in then and mark.id > then[queue].id
    ]
    return max(behind, default=0)


def _written(mark: Mark) -> dict[str, Any]:
    value: dict[str, Any] = {"id": text(mark.id)}
    if mark.added is not None:
        value["added"] = mark.added
    if mark.lost:
        value["lost"] = mark.lost
    return value


def _read(queue: str, value: Any) -> Mark:
    fields = {"id": value} if isinstance(value, str) else value
    if not isinstance(fields, dict) or not fields.keys() <= {"id", "added", "lost"}:
        raise ValueError(f"no offset of queue {queue!r}: {value!r}")
    id, added, lost = fields.get("id"), fields.get("added"), fields.get("lost", 0)
    if not _is_count(lost) or not (added is None or _is_count(added)):
        raise ValueError(f"no offset of queue {queue!r}: {value!r}")
    return Mark(_id(queue, id), added, lost)


def _id(queue: str, id: Any) -> int:
    parts = id.split("-") if isinstance(id, str) else []
    if len(parts) not in (1, 2) or not all(part.isascii() and part.isdecimal() for part in parts):
        raise ValueError(f"no entry id of queue {queue!r}: {id!r}")
    if max(map(int, parts)) >> 64:
        raise ValueError(f"no entry id of queue {queue!r}: {id!r}")
    return number(id)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


# ── what they mean ───────────────────────────────────────────────────────────


def lost(mark: Mark, seen: Stream) -> int:
    """Return how many entries behind *mark* are not there any more; at least so many."""
    if not mark.id or seen.last <= mark.id:
        return 0
    if seen.first is not None and seen.first <= mark.id + 1:
        return 0
    if mark.added is None:
        # The one that followed is gone. How many with it, nobody knows.
        return 1
    # Nothing up to the mark is left, so all that had been there until then was removed.
    behind = seen.removed - mark.added
    # Less than nothing: the stream was deleted and made anew, and all of it came later.
    return behind if behind >= 0 else seen.removed


def at_most(mark: Mark, seen: Stream) -> int:
    """Return how many entries there may be behind *mark*; 0 only if there are none.

    Exactly so many, unless some were removed or nobody has counted.
    """
    if seen.last <= mark.id:
        return 0
    if mark.added is not None and mark.added < seen.added:
        return max(1, min(seen.added - mark.added, seen.length))
    # Even where nothing is left to read, the mark still has to move.
    return max(1, seen.length)


def shares(marks: Mapping[str, Mark], backlog: Mapping[str, int], most: int) -> dict[str, int]:
    """Deal *most* rows out: as many to each queue, but none more than its *backlog*."""
    due = [queue for queue, count in backlog.items() if count]
    if len(due) > most:
        # Those that are furthest behind; the others' turn comes when these have moved on.
        due = sorted(due, key=lambda queue: (marks.get(queue, START).id, queue))[:most]
    dealt: dict[str, int] = {}
    left = most
    for place, queue in enumerate(sorted(due, key=lambda queue: (backlog[queue], queue))):
        dealt[queue] = min(backlog[queue], left // (len(due) - place))
        left -= dealt[queue]
    return dealt


def before(next_id: int, goal: Mark) -> Mark:
    """Return the mark just before the entry *next_id*; *goal* if that comes first."""
    return goal if next_id > goal.id else Mark(next_id - 1)


def moved(start: Mark, end: Mark, lost: int) -> Mark:
    """Return *end*, never before *start*, with all that was *lost* on the way so far."""
    if end.id <= start.id:
        return start
    return replace(end, lost=start.lost + lost)


def within(low: int, seen: Stream, high: int) -> tuple[int, int] | None:
    """Return the first and last id there may be behind *low* and up to *high*; or nothing."""
    first = max(low + 1, LAST if seen.first is None else seen.first)
    last = min(high, seen.last)
    return (first, last) if first <= last else None
