"""Where a batch of one stream begins and ends, and how it is cut for tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from tambomq.spark import tail_ops
from tambomq.spark.stream_cuts import text
from tambomq.spark.tail_offsets import LATEST, START, Mark, Stream, at_most, before, within
from tambomq.store.sync import Store

Span: TypeAlias = tuple[Mark, Mark]
"""From behind the first mark to the last that may be."""

# A task for less than that costs more than it saves.
_WORTH_A_TASK: Final = 1000
# A limit of rows is made of so many pieces, so a batch has a part more or less of them at worst.
_PER_LIMIT: Final = 4


def begin(store: Store, key: str, told: Mark | str, seen: Stream) -> Mark:
    """Return the mark for what a caller has *told*: latest, a mark, or anybody's id."""
    if told == LATEST:
        return seen.end
    mark = told if isinstance(told, Mark) else START
    if mark.added is not None:
        return mark
    if mark.id > seen.last:
        return Mark(mark.id, seen.added)
    # Nobody knows what stands behind that id, so take the one just before what does.
    return before(store.run(tail_ops.following(key, mark.id + 1)), seen.end)


def counted_end(store: Store, key: str, span: Span, seen: Stream, rows: int) -> Mark:  # noqa: ARG001  (as `end`)
    """Return where exactly *rows* entries of *span* end."""
    start, goal = span
    return before(store.follow(tail_ops.counted(key, start.id, rows)), goal)


def end(store: Store, key: str, span: Span, seen: Stream, rows: int) -> Mark:
    """Return where about *rows* entries of *span* end; there is at least one in it."""
    start, goal = span
    if seen.first is None or at_most(start, seen) <= rows:
        return goal
    following = store.run(tail_ops.following(key, start.id + 1))
    if following > goal.id:
        return goal
    # Of the whole stream it is known how many entries it has, of no part of it.
    count = -(-seen.length * _PER_LIMIT // rows)
    edges = store.follow(tail_ops.pieces(key, seen.first, seen.last, seen.length, count))
    ahead = [edge for edge in edges if edge >= following]
    if len(ahead) < _PER_LIMIT:
        return goal
    return before(store.run(tail_ops.following(key, ahead[_PER_LIMIT - 1] + 1)), goal)


def ranges(
    store: Store, key: str, span: Span, seen: Stream, count: int
) -> Iterator[tuple[str, str]]:
    """Yield low and high of at most *count* parts of *span*."""
    low, high = span
    reach = within(low.id, seen, high.id)
    if reach is None:
        return
    ends = [high.id]
    if count > 1 and at_most(low, seen) > _WORTH_A_TASK:
        plan = tail_ops.pieces(key, *reach, seen.length, count)
        ends[:0] = store.follow(plan)[:-1]
    after = low.id
    for end in ends:
        yield f"({text(after)}" if after else "-", text(end)
        after = end
