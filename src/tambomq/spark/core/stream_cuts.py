"""Splits a stream into pieces of about equal entry counts. Pure planning: it does no I/O.

Redis knows the length of a stream, but not how many entries lie between two ids. It finds quickly
the entries just before and after a point in time. Their ids are enough to estimate the density
there: the sequence number counts the entries of a millisecond, and the next id shows the gap after
it. The integral of the density over time is the number of entries, however they are spread.

A plan samples points all over the stream, then samples again inside spans that are heavy, or whose
entries fill less than half of the time sampled. A burst may hide in steady traffic between two
points, so if clearly fewer entries were found than the stream has, all spans are sampled once more.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Around: TypeAlias = tuple[int | None, int | None]
"""The last id before a point, and the first from it on."""
Cutting: TypeAlias = Generator[list[int], Sequence[Around], list[tuple[int, int]]]
"""Yields milliseconds, is sent the ids around each; returns first and last id of each piece."""

_SEQUENCES: Final = 1 << 64
LAST: Final = (1 << 128) - 1
"""The largest possible id."""

# A sample takes Redis 10 µs, so all together take about as long as one or two pages.
_EVEN, _PER_POINT = 2048, 32
_ROUNDS, _OPENED, _INSIDE = 8, 64, 8
_HIDDEN, _INSIDE_HIDDEN = 512, 4
_FOUND: Final = 0.75
# A span lighter than 1/8 of a piece may be split anywhere: a piece is an eighth too large at worst.
_FINE: Final = 8


def number(id: bytes | str) -> int:
    """Return an id as one number, which preserves the order of ids."""
    ms, _, sequence = (id.decode() if isinstance(id, bytes) else id).partition("-")
    return int(ms) * _SEQUENCES + int(sequence or 0)


def text(number: int) -> str:
    """Return the id of *number*, as `number` computes it."""
    return f"{number // _SEQUENCES}-{number % _SEQUENCES}"


def start_of(ms: int) -> int:
    """Return the first possible id of a millisecond."""
    return ms * _SEQUENCES


@dataclass(slots=True)
class _Span:
    """Entries from *first* to *last* (both exist), and their estimated count, the weight."""

    first: int
    last: int
    weight: float
    hidden: bool
    """Whether its entries fill less than half of the time sampled, so its weight is a guess."""

    @property
    def start_ms(self) -> int:
        return self.first // _SEQUENCES

    @property
    def end_ms(self) -> int:
        return self.last // _SEQUENCES

    @property
    def is_moment(self) -> bool:
        """Whether it lies within one millisecond, where sequence numbers count entries."""
        return self.start_ms == self.end_ms


def cut(first: int, last: int, length: int, pieces: int, *, whole: bool = False) -> Cutting:
    """Split the entries from id *first* to *last*, which both exist, into at most *pieces*.

    *length* is the length of the stream; *whole* says that the range covers all of it.
    """
    spans = [_span(first, last, 1.0, length, hidden=False)]
    even = max(2 * _FINE * pieces, min(_EVEN, length // _PER_POINT))
    if pieces > 1 and not spans[0].is_moment:
        spans = yield from _opened(spans, [(spans[0], even)], length)
        spans = yield from _refined(spans, pieces, length)
        if whole and sum(span.weight for span in spans) < length * _FOUND:
            wide = [(span, _INSIDE) for span in spans if not span.is_moment]
            spans = yield from _opened(spans, wide, length)
            spans = yield from _refined(spans, pieces, length)
    edges = sorted({edge for edge in _edges(spans, pieces) if first < edge <= last})
    return [*zip([first, *edges], [*(edge - 1 for edge in edges), last], strict=True)]


def _refined(
    spans: list[_Span], pieces: int, length: int
) -> Generator[list[int], Sequence[Around], list[_Span]]:
    for _ in range(_ROUNDS):
        chosen = _worth_opening(spans, pieces)
        if not chosen:
            break
        spans = yield from _opened(spans, chosen, length)
    return spans


def _worth_opening(spans: Sequence[_Span], pieces: int) -> list[tuple[_Span, int]]:
    """Return the heaviest and the hidden spans, with the number of points to sample in each."""
    max_weight = sum(span.weight for span in spans) / (pieces * _FINE)
    wide = [span for span in spans if not span.is_moment]
    heavy = [span for span in wide if span.weight > max_weight]
    heavy.sort(key=lambda span: span.weight, reverse=True)
    hidden = [span for span in wide if span.hidden and span.weight <= max_weight]
    return [
        *((span, _INSIDE) for span in heavy[:_OPENED]),
        *((span, _INSIDE_HIDDEN) for span in hidden[:_HIDDEN]),
    ]


def _opened(
    spans: Sequence[_Span], chosen: Sequence[tuple[_Span, int]], length: int
) -> Generator[list[int], Sequence[Around], list[_Span]]:
    """Sample points in each of *chosen*; return *spans* with those replaced by smaller ones."""
    looks = {id(span): _points(span, count) for span, count in chosen}
    around = iter((yield [point for span, _ in chosen for point in looks[id(span)]]))
    parts = {
        id(span): list(_parts(span, [(ms, next(around)) for ms in looks[id(span)]], length))
        for span, _ in chosen
    }
    return [part for span in spans for part in parts.get(id(span), (span,))]


def _points(span: _Span, count: int) -> list[int]:
    """Return at most *count* evenly spaced milliseconds inside *span*."""
    size = span.end_ms - span.start_ms
    count = min(count, size)
    return [span.start_ms + size * index // count for index in range(1, count + 1)]


def _parts(span: _Span, looks: Sequence[tuple[int, Around]], length: int) -> Iterator[_Span]:
    """Yield the spans between the sampled points; none where there are no entries."""
    first, start_ms, density = span.first, span.start_ms, None
    for ms, (before, after) in looks:
        # Entries may have been deleted since they were sampled.
        here = span.last if after is None else after
        around = 0.0 if before is None else _density(before, here, length)
        if before is not None and before >= first:
            mean = around if density is None else (density + around) / 2
            yield _between(first, before, mean, length, ms - start_ms)
        first, start_ms, density = max(first, here), ms, around
    if first <= span.last:
        size = span.end_ms - start_ms + 1
        yield _between(first, span.last, density or 0.0, length, size)


def _between(first: int, last: int, density: float, length: int, looked_at_ms: int) -> _Span:
    taken_ms = last // _SEQUENCES - first // _SEQUENCES + 1
    hidden = taken_ms * 2 < looked_at_ms
    return _span(first, last, density * looked_at_ms, length, hidden=hidden)


def _span(first: int, last: int, weight: float, length: int, *, hidden: bool) -> _Span:
    if first // _SEQUENCES == last // _SEQUENCES:
        return _Span(first, last, min(last - first + 1, length), hidden=False)
    return _Span(first, last, max(2.0, min(weight, length)), hidden)


def _density(before: int, after: int, length: int) -> float:
    """Return entries per millisecond from *before* to *after*."""
    had = min(before % _SEQUENCES + 1, length)
    return had / max(1, after // _SEQUENCES - before // _SEQUENCES)


def _edges(spans: Sequence[_Span], pieces: int) -> Iterator[int]:
    """Yield the first ids of pieces of equal weight."""
    each = sum(span.weight for span in spans) / pieces
    passed, index = 0.0, 1
    for span in spans:
        while index < pieces and passed + span.weight > each * index:
            yield _inside(span, (each * index - passed) / span.weight)
            index += 1
        passed += span.weight


def _inside(span: _Span, part: float) -> int:
    if span.is_moment:
        return span.first + round((span.last - span.first + 1) * part)
    return start_of(span.start_ms + round((span.end_ms - span.start_ms + 1) * part))
