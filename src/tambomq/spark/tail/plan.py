"""Start and end of a batch of one stream, and its split into tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from tambomq.spark.core.stream_cuts import text
from tambomq.spark.tail import ops as tail_ops
from tambomq.spark.tail.offsets import (
    LATEST,
    START,
    StreamOffset,
    StreamState,
    backlog_bound,
    before,
    clip,
)
from tambomq.store.sync import Store

Span: TypeAlias = tuple[StreamOffset, StreamOffset]
"""The entries after the first offset, up to and including the second."""

# Starting a task for fewer entries costs more than it saves.
_WORTH_A_TASK: Final = 1000
# A row limit spans this many pieces, so a batch is off by at most one piece, a quarter.
_PER_LIMIT: Final = 4


def begin(store: Store, key: str, given: StreamOffset | str, state: StreamState) -> StreamOffset:
    """Return the offset to begin at; *given* is ``latest``, an offset, or any entry id."""
    if given == LATEST:
        return state.end
    offset = given if isinstance(given, StreamOffset) else START
    if offset.added is not None:
        return offset
    if offset.id > state.last:
        return StreamOffset(offset.id, state.added)
    # The id need not exist: use the offset just before the first entry after it.
    return before(store.run(tail_ops.following(key, offset.id + 1)), state.end)


def counted_end(store: Store, key: str, span: Span, state: StreamState, rows: int) -> StreamOffset:  # noqa: ARG001  (as `end`)
    """Return the offset after exactly *rows* entries of *span*."""
    start, goal = span
    return before(store.follow(tail_ops.counted(key, start.id, rows)), goal)


def end(store: Store, key: str, span: Span, state: StreamState, rows: int) -> StreamOffset:
    """Return the offset after about *rows* entries of *span*, at least one."""
    start, goal = span
    if state.first is None or backlog_bound(start, state) <= rows:
        return goal
    following = store.run(tail_ops.following(key, start.id + 1))
    if following > goal.id:
        return goal
    # Redis knows the length of the whole stream only, so split all of it.
    count = -(-state.length * _PER_LIMIT // rows)
    edges = store.follow(tail_ops.pieces(key, state.first, state.last, state.length, count))
    ahead = [edge for edge in edges if edge >= following]
    if len(ahead) < _PER_LIMIT:
        return goal
    return before(store.run(tail_ops.following(key, ahead[_PER_LIMIT - 1] + 1)), goal)


def ranges(
    store: Store, key: str, span: Span, state: StreamState, count: int
) -> Iterator[tuple[str, str]]:
    """Yield low and high of at most *count* parts of *span*."""
    low, high = span
    reach = clip(low.id, state, high.id)
    if reach is None:
        return
    ends = [high.id]
    if count > 1 and backlog_bound(low, state) > _WORTH_A_TASK:
        plan = tail_ops.pieces(key, *reach, state.length, count)
        ends[:0] = store.follow(plan)[:-1]
    after = low.id
    for end in ends:
        yield f"({text(after)}" if after else "-", text(end)
        after = end
