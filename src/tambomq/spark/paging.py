"""How much to ask for at once, where nobody knows how large the next answer will be.

And how much to hand on at once: what is handed on takes its time for each piece, but a piece has to
be held by whoever is given it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

ENOUGH_BYTES: Final = 4 << 20
"""Of one answer: more is no faster, and a worker has to hold it."""
MOST_BYTES: Final = 4 * ENOUGH_BYTES
"""Of one batch of rows, unless it is one row."""
_SAMPLED: Final = 64
"""So many entries of a page tell how large they are: to look at all takes time, too."""
_FIRST: Final = 4
_FASTER: Final = 4
_GATHERED: Final = 4


class Pace:
    """Says how many to ask for, from what came before; never more than *most*."""

    def __init__(self, most: int) -> None:
        # A body may have 16 MiB. Few are asked for until it is known how large they are.
        self._most, self.count = most, min(_FIRST, most)
        self._fitting = self.count

    @property
    def worth_a_batch(self) -> int:
        """How many rows to hand on at once: some pages of them, once they are known to be small."""
        if self.count < self._most:
            return self.count
        return min(self._fitting, _GATHERED * self._most)

    def note(self, answer: Iterable[bytes | None]) -> None:
        """Learn from what came."""
        sizes = [len(each) for each in answer if each is not None]
        self.note_size(sum(sizes), len(sizes))

    def note_size(self, size: int, rows: int) -> None:
        """Learn from *rows* that had *size* bytes."""
        self._fitting = ENOUGH_BYTES // max(1, size // max(1, rows))
        self.count = max(1, min(self._fitting, self.count * _FASTER, self._most))

    def note_entries(self, page: list[Any]) -> None:
        """Learn from some entries of a stream, each an id and its fields."""
        sample = page[:: max(1, len(page) // _SAMPLED)]
        self.note(b"".join(fields or ()) for _, fields in sample)


def stream_pages(
    read: Callable[[str, int], list[Any]], low: str, pace: Pace
) -> Iterator[list[Any]]:
    """Yield pages of a stream from *low* on; *read* is told where to begin, and how many to get."""
    asked = pace.count
    while page := read(low, asked):
        yield page
        if len(page) < asked:
            return
        pace.note_entries(page)
        low, asked = f"({page[-1][0].decode()}", pace.count


def gathered(pages: Iterable[list[Any]], pace: Pace) -> Iterator[list[Any]]:
    """Yield the rows of several *pages* together, as many as *pace* says."""
    held: list[Any] = []
    for page in pages:
        held = held + page if held else page
        if len(held) >= pace.worth_a_batch:
            yield held
            held = []
    if held:
        yield held


def bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield *batch* in pieces of at most `MOST_BYTES`, or of one row."""
    if batch.nbytes <= MOST_BYTES or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from bounded(batch.slice(0, half))
    yield from bounded(batch.slice(half))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let nobody look for garbage meanwhile.

    Rows come and go by the thousand, each of several objects, and none of them is in a circle: to
    look for those would take a third of the time.
    """
    was_looking = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_looking:
            gc.enable()
