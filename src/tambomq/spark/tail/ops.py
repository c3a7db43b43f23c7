"""What tails, and tables that are streams, ask of a stream, as calls nobody has made yet.

Whose the stream is does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tambomq.chasqui import scan_ops
from tambomq.spark.stream_cuts import LAST, Around, Cutting, cut, number, text
from tambomq.spark.tail_offsets import Stream
from tambomq.store.call import Call, Plan, load_script, results

STEP: Final = 1000
"""Entries to go at a time: Redis does nothing else meanwhile."""
_LOOKS: Final = 128
"""So many points are looked at by one script: it must not keep others waiting."""

_STATE = load_script("tambomq.spark", "stream_state")
_AHEAD = load_script("tambomq.spark", "ahead")


def state(stream: str) -> Call[Stream]:
    """Return what there is of a stream."""
    return Call(_STATE, (stream,), (), decode=_stream, repeatable=True)


def following(stream: str, id: int) -> Call[int]:
    """Return the first entry from *id* on; the last id there can be if there is none."""
    words = (text(id), 1)
    return Call(_AHEAD, (stream,), words, decode=lambda reply: _ahead(reply)[1], repeatable=True)


def counted(stream: str, after: int, rows: int) -> Plan[int]:
    """Return the entry that follows the first *rows* behind *after*; or the last id there can be.

    Counts them one by one, which takes its time.
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
    """Return the last ids of at most *count* pieces of about as many entries each.

    Together they are all that is from *low* to *high*; *length* is that of the whole stream.
    """
    edges = text(low), text(high)
    ends = yield (scan_ops.first(stream, *edges), scan_ops.last(stream, *edges))
    first, last = results(ends)
    if first is None or last is None:
        return []
    cutting = cut(number(first), number(last), length, count)
    return [high for _, high in (yield from looked(stream, cutting))]


def looked(stream: str, cutting: Cutting) -> Plan[list[tuple[int, int]]]:
    """Return what *cutting* comes to, by looking where it wants to."""
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


def _stream(reply: list[Any]) -> Stream:
    if not reply:
        return Stream()
    first, last, length, added = reply
    # Servers before Redis 7 do not count what was added: to them, nothing was removed.
    return Stream(number(first) if first else None, number(last), int(length), int(added or length))


def _ahead(reply: list[Any]) -> tuple[int, int]:
    count, id = reply
    return int(count), number(id) if id else LAST
