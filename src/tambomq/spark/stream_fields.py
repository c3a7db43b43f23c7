"""Pages of a stream by columns: the fields of all entries at once, without a loop over rows.

Entries of one kind have the same fields in the same order, and a page has few kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tambomq.spark.columns import BYTES, LONG, TEXT, TIME

# What Spark can show: the years 1 to 9999.
_EARLIEST_MS, _LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
_MOST: Final = 2**63 - 1
# Arrow takes longer to make a number its own than to use it.
_BEFORE: Final = pa.scalar(0, pa.int32())
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")


class _Kind:
    """Entries with the same fields: where they are in the page, and their values by field."""

    def __init__(self, names: tuple[bytes, ...], places: Sequence[int], values: list[Any]) -> None:
        self.names, self.places, self._values = names, places, values

    def column(self, name: bytes) -> Sequence[bytes] | None:
        """Return the values of a field, the first of those that are repeated."""
        return self._values[self.names.index(name)] if name in self.names else None


class Fields:
    """The fields of a page."""

    def __init__(self, entries: Sequence[Sequence[bytes]]) -> None:
        """Sort *entries*, each of names and values in turn, by what fields they have."""
        self._count = len(entries)
        self._kinds = _one_kind(entries) or _kinds(entries)
        self._order: pa.Array | None = None
        if len(self._kinds) > 1:
            there = [place for kind in self._kinds for place in kind.places]
            self._order = pc.array_sort_indices(pa.array(there, LONG))

    @property
    def names(self) -> frozenset[bytes]:
        """All fields that any entry has."""
        return frozenset(name for kind in self._kinds for name in kind.names)

    def values(self, name: bytes) -> Sequence[bytes | None]:
        """Return a field of each entry; `None` where it is missing."""
        if len(self._kinds) == 1:
            return self._kinds[0].column(name) or [None] * self._count
        found: list[bytes | None] = [None] * self._count
        for kind in self._kinds:
            for place, value in zip(kind.places, kind.column(name) or (), strict=False):
                found[place] = value
        return found

    def array(self, name: bytes) -> pa.Array:
        """Return the same as Arrow has it."""
        columns = [(kind.column(name), len(kind.places)) for kind in self._kinds]
        arrays = [
            pa.nulls(count, BYTES) if column is None else pa.array(column, BYTES)
            for column, count in columns
        ]
        if self._order is None:
            return arrays[0]
        return pa.concat_arrays(arrays).take(self._order)


def _one_kind(entries: Sequence[Sequence[bytes]]) -> list[_Kind]:
    """Return the one kind that all *entries* are of; nothing if there are several."""
    try:
        columns = list(zip(*entries, strict=True))
    except ValueError:
        return []
    if any(len(set(names)) > 1 for names in columns[::2]):
        return []
    names = tuple(each[0] for each in columns[::2])
    return [_Kind(names, range(len(entries)), columns[1::2])]


def _kinds(entries: Sequence[Sequence[bytes]]) -> list[_Kind]:
    places: dict[tuple[bytes, ...], list[int]] = {}
    for place, entry in enumerate(entries):
        places.setdefault(tuple(entry[::2]), []).append(place)
    return [
        _Kind(names, where, list(zip(*(entries[place][1::2] for place in where), strict=True)))
        for names, where in places.items()
    ]


def whole_numbers(texts: pa.Array) -> pa.Array | None:
    """Return decimal texts as numbers; `None` if one of them is none."""
    try:
        return texts.cast(TEXT).cast(LONG)
    except pa.ArrowInvalid:
        return None


def moments(ids: Sequence[bytes]) -> pa.Array:
    """Return the times that entry ids begin with."""
    parts = pc.split_pattern(pa.array(ids, BYTES).cast(TEXT), "-", max_splits=1)
    ms = whole_numbers(pc.list_element(parts, _BEFORE))
    if ms is None:
        far = (int(id.partition(b"-")[0]) for id in ids)
        ms = pa.array([each if each <= _MOST else None for each in far], LONG)
    return clock(ms)


def clock(ms: pa.Array) -> pa.Array:
    """Return milliseconds as times; what no clock shows is null."""
    ends = pc.min_max(ms).as_py()
    if ends["min"] is not None and not _EARLIEST_MS <= ends["min"] <= ends["max"] <= _LATEST_MS:
        shown = [each if _is_shown(each) else None for each in ms.to_pylist()]
        ms = pa.array(shown, LONG)
    # Seen as what they are, they need no arithmetic.
    return ms.view(_MILLISECONDS).cast(TIME)


def _is_shown(ms: int | None) -> bool:
    return ms is not None and _EARLIEST_MS <= ms <= _LATEST_MS
