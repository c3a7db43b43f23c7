"""Read-only calls and plans on Redis streams, for tails and for tables that are streams.

They work on streams of any protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tambomq.chasqui.bulk import scan as scan_ops
from tambomq.spark.core.stream_cuts import LAST, Around, Cutting, cut, number, text
from tambomq.spark.tail.offsets import StreamState
from tambomq.store.call import Call, Plan, load_script, results

STEP: Final = 1000
"""Entries that one script counts: Redis is blocked meanwhile."""
_LOOKS: Final = 128
"""Points that one script samples: Redis is blocked meanwhile."""

_STATE = load_script("tambomq.spark.tail", "stream_state")
_AHEAD = load_script("tambomq.spark.tail", "ahead")


def state(stream: str) -> Call[StreamState]:
    """Return the state of a stream."""
    return Call(_STATE, (stream,), (), decode=_stream, repeatable=True)


def following(stream: str, id: int) -> Call[int]:
    """Return the first entry from *id* on; `LAST` if there is none."""
    words = (text(id), 1)
    return Call(_AHEAD, (stream,), words, decode=lambda reply: _ahead(reply)[1], repeatable=True)


def counted(stream: str, after: int, rows: int) -> Plan[int]:
    """Return the entry that follows the first *rows* entries after *after*; `LAST` if none does.

    Takes time in proportion to *rows*.
    """
    left, id = rows + 1, after
    while left > 0 and id < LAST:
        words = (text(id + 1), min(left, STEP))
        call = Call(_AHEAD, (stream,), words, decode=_ahead, repeatable=True)
        found, id = results((yield (call,)))[0]
        if found < words[1]:
            return LAST
        left -= found
    return id


def pieces(stream: str, low: int, high: int, length: int, count: int) -> Plan[list[int]]:
    """Return the last ids of at most *count* pieces with about equal entry counts.

    Together they cover *low* to *high*; *length* is the length of the whole stream.
    """
    edges = text(low), text(high)
    ends = yield (scan_ops.first(stream, *edges), scan_ops.last(stream, *edges))
    first, last = results(ends)
    if first is None or last is None:
        return []
    cutting = cut(number(first), number(last), length, count)
    return [high for _, high in (yield from looked(stream, cutting))]


def looked(stream: str, cutting: Cutting) -> Plan[list[tuple[int, int]]]:
    """Return the result of *cutting*, sampling the stream at the points it yields."""
    try:
        points = next(cutting)
        while True:
            found = yield from _around(stream, points)
            points = cutting.send(found)
    except StopIteration as end:
        pieces: list[tuple[int, int]] = end.value
        return pieces


def _around(stream: str, points: Sequence[int]) -> Plan[list[Around]]:
    shares = [points[at : at + _LOOKS] for at in range(0, len(points), _LOOKS)]
    found = results((yield [scan_ops.around(stream, share) for share in shares]))
    return [
        (None if before is None else number(before), None if after is None else number(after))
        for share in found
        for before, after in share
    ]


def _stream(reply: list[Any]) -> StreamState:
    if not reply:
        return StreamState()
    first, last, length, added = reply
    # Before Redis 7, servers do not count added entries: assume that none was removed.
    return StreamState(
        number(first) if first else None, number(last), int(length), int(added or length)
    )


def _ahead(reply: list[Any]) -> tuple[int, int]:
    count, id = reply
    return int(count), number(id) if id else LAST
