"""Converts pages of stream entries to columns without a Python loop over rows.

Entries are grouped by shape: the same fields in the same order. A page has few shapes, and entries
with equally many fields mostly share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tambomq.spark.core.columns import BYTES, LONG, TEXT, clock

_MAX: Final = 2**63 - 1


class _Shape:
    """Entries with the same fields: their indexes in the page, and their values by field."""

    def __init__(self, names: tuple[bytes, ...], indexes: Sequence[int], values: list[Any]) -> None:
        self.names, self.indexes, self._values = names, indexes, values

    def column(self, name: bytes) -> Sequence[bytes] | None:
        """Return the values of a field, the first one if it is repeated."""
        return self._values[self.names.index(name)] if name in self.names else None

    @property
    def repeats(self) -> bool:
        """Whether a field occurs twice."""
        return len(set(self.names)) < len(self.names)


class Fields:
    """The fields of a page."""

    def __init__(self, entries: Sequence[Sequence[bytes]]) -> None:
        """Group *entries*, each of names and values alternating, by shape."""
        self.count = len(entries)
        self._shapes = _one_shape(entries, range(len(entries))) or _shapes(entries)
        self._order: pa.Array | None = None
        if len(self._shapes) > 1:
            there = [index for shape in self._shapes for index in shape.indexes]
            self._order = pc.array_sort_indices(pa.array(there, LONG))

    @property
    def names(self) -> frozenset[bytes]:
        """All fields that any entry has."""
        return frozenset(name for shape in self._shapes for name in shape.names)

    @property
    def repeat(self) -> bool:
        """Whether an entry has a field twice."""
        return any(shape.repeats for shape in self._shapes)

    def values(self, name: bytes) -> Sequence[bytes | None]:
        """Return a field of each entry; `None` where it is missing."""
        if len(self._shapes) == 1:
            return self._shapes[0].column(name) or [None] * self.count
        found: list[bytes | None] = [None] * self.count
        for shape in self._shapes:
            for index, value in zip(shape.indexes, shape.column(name) or (), strict=False):
                found[index] = value
        return found

    def array(self, name: bytes) -> pa.Array | None:
        """Return a field as an Arrow array; `None` if no entry has it."""
        columns = [(shape.column(name), len(shape.indexes)) for shape in self._shapes]
        if all(column is None for column, _ in columns):
            return None
        arrays = [
            pa.nulls(count, BYTES) if column is None else pa.array(column, BYTES)
            for column, count in columns
        ]
        if self._order is None:
            return arrays[0]
        return pa.concat_arrays(arrays).take(self._order)

    def column(self, name: bytes) -> pa.Array:
        """Return a field as an Arrow array, null where it is missing."""
        found = self.array(name)
        return pa.nulls(self.count, BYTES) if found is None else found


def _one_shape(entries: Sequence[Sequence[bytes]], indexes: Sequence[int]) -> list[_Shape]:
    """Return the single shape of all *entries*; an empty list if there are several."""
    try:
        columns = list(zip(*entries, strict=True))
    except ValueError:
        return []
    if any(len(set(names)) > 1 for names in columns[::2]):
        return []
    names = tuple(each[0] for each in columns[::2])
    return [_Shape(names, indexes, columns[1::2])]


def _shapes(entries: Sequence[Sequence[bytes]]) -> list[_Shape]:
    lengths: dict[int, list[int]] = {}
    for index, length in enumerate(map(len, entries)):
        lengths.setdefault(length, []).append(index)
    found = []
    for indexes in lengths.values():
        some = [entries[index] for index in indexes]
        found += _one_shape(some, indexes) or _by_names(some, indexes)
    return found


def _by_names(entries: Sequence[Sequence[bytes]], indexes: Sequence[int]) -> list[_Shape]:
    shapes: dict[tuple[bytes, ...], list[int]] = {}
    for at, entry in enumerate(entries):
        shapes.setdefault(tuple(entry[::2]), []).append(at)
    return [
        _Shape(
            names,
            [indexes[at] for at in members],
            list(zip(*(entries[at][1::2] for at in members), strict=True)),
        )
        for names, members in shapes.items()
    ]


def whole_numbers(texts: pa.Array) -> pa.Array | None:
    """Return decimal texts as numbers; `None` if one of them is no number."""
    try:
        words = texts.cast(TEXT)
        # Arrow alone would also accept 0x10.
        return words.cast(LONG) if pc.all(pc.ascii_is_decimal(words)).as_py() is not False else None
    except pa.ArrowInvalid:
        return None


def moments(ids: pa.Array) -> pa.Array:
    """Return the times that entry ids begin with."""
    ends = pc.min_max(pc.find_substring(ids, b"-")).as_py()
    ms = None
    if ends["min"] == ends["max"]:
        # All have the same length, as they will for centuries: slice instead of parsing each.
        ms = whole_numbers(pc.binary_slice(ids, 0, ends["max"]))
    if ms is None:
        far = (int(id.partition(b"-")[0]) for id in ids.to_pylist())
        ms = pa.array([each if each <= _MAX else None for each in far], LONG)
    return clock(ms)
