"""Page and batch sizes for reads whose row size is not known in advance.

Pages grow while replies stay small. Several pages are merged into one Arrow batch, since each batch
has a fixed cost, but a batch must fit into the memory of the worker that receives it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

TARGET_BYTES: Final = 4 << 20
"""Size of a reply to aim for: larger ones are no faster, and take memory of the worker."""
MAX_BYTES: Final = 4 * TARGET_BYTES
"""Limit of an Arrow batch, unless it is a single row."""
_SAMPLED: Final = 64
"""Entries of a page that are measured; measuring all would take too long."""
_FIRST: Final = 4
_FASTER: Final = 4
_GATHERED: Final = 4


class PageSizer:
    """Chooses the next page's row count from the sizes seen so far; at most *max_count*."""

    def __init__(self, max_count: int) -> None:
        # A body may have 16 MiB: start with few rows until their size is known.
        self._max_count, self.count = max_count, min(_FIRST, max_count)
        self._fitting = self.count

    @property
    def rows_per_batch(self) -> int:
        """Rows per Arrow batch: several pages of them, once they are known to be small."""
        if self.count < self._max_count:
            return self.count
        return min(self._fitting, _GATHERED * self._max_count)

    def note(self, answer: Iterable[bytes | None]) -> None:
        """Adapt to the sizes of a reply's values."""
        sizes = [*map(len, filter(None, answer))]
        self.note_size(sum(sizes), len(sizes))

    def note_size(self, size: int, rows: int) -> None:
        """Adapt to *rows* of *size* bytes in total."""
        self._fitting = TARGET_BYTES // max(1, size // max(1, rows))
        self.count = max(1, min(self._fitting, self.count * _FASTER, self._max_count))

    def note_entries(self, page: list[Any]) -> None:
        """Adapt to a sample of stream entries, each an id and its fields."""
        sample = page[:: max(1, len(page) // _SAMPLED)]
        self.note(b"".join(fields or ()) for _, fields in sample)


def stream_pages(
    read: Callable[[str, int], list[Any]], low: str, sizer: PageSizer
) -> Iterator[list[Any]]:
    """Yield pages of a stream from *low* on; *read* takes the first id and the row count."""
    asked = sizer.count
    while page := read(low, asked):
        yield page
        if len(page) < asked:
            return
        sizer.note_entries(page)
        low, asked = f"({page[-1][0].decode()}", sizer.count


class Page(Protocol):
    """Rows that can be counted and joined."""

    def __len__(self) -> int: ...
    def __add__(self, other: Any, /) -> Any: ...


P = TypeVar("P", bound=Page)


def merge_pages(pages: Iterable[P], sizer: PageSizer) -> Iterator[P]:
    """Yield the rows of several *pages* together, as many as *sizer* allows."""
    held: P | None = None
    for page in pages:
        held = page if held is None else held + page
        if len(held) >= sizer.rows_per_batch:
            yield held
            held = None
    if held is not None:
        yield held


def split_large(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield *batch* in pieces of at most `MAX_BYTES`, or of one row."""
    if batch.nbytes <= MAX_BYTES or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from split_large(batch.slice(0, half))
    yield from split_large(batch.slice(half))


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the cyclic garbage collector.

    Converting rows allocates thousands of objects without any cycles; collecting would take a third
    of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
