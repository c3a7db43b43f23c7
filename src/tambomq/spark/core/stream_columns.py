"""Pages of a stream by columns: the fields of all entries at once, without a loop over rows.

Entries of one kind have the same fields in the same order, and a page has few kinds. Those of one
length are mostly of one kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tambomq.spark.columns import BYTES, LONG, TEXT, clock

_MOST: Final = 2**63 - 1


class _Kind:
    """Entries with the same fields: where they are in the page, and their values by field."""

    def __init__(self, names: tuple[bytes, ...], places: Sequence[int], values: list[Any]) -> None:
        self.names, self.places, self._values = names, places, values

    def column(self, name: bytes) -> Sequence[bytes] | None:
        """Return the values of a field, the first of those that are repeated."""
        return self._values[self.names.index(name)] if name in self.names else None

    @property
    def repeats(self) -> bool:
        """Whether a field is there twice."""
        return len(set(self.names)) < len(self.names)


class Fields:
    """The fields of a page."""

    def __init__(self, entries: Sequence[Sequence[bytes]]) -> None:
        """Sort *entries*, each of names and values in turn, by what fields they have."""
        self.count = len(entries)
        self._kinds = _one_kind(entries, range(len(entries))) or _kinds(entries)
        self._order: pa.Array | None = None
        if len(self._kinds) > 1:
            there = [place for kind in self._kinds for place in kind.places]
            self._order = pc.array_sort_indices(pa.array(there, LONG))

    @property
    def names(self) -> frozenset[bytes]:
        """All fields that any entry has."""
        return frozenset(name for kind in self._kinds for name in kind.names)

    @property
    def repeat(self) -> bool:
        """Whether an entry has a field twice."""
        return any(kind.repeats for kind in self._kinds)

    def values(self, name: bytes) -> Sequence[bytes | None]:
        """Return a field of each entry; `None` where it is missing."""
        if len(self._kinds) == 1:
            return self._kinds[0].column(name) or [None] * self.count
        found: list[bytes | None] = [None] * self.count
        for kind in self._kinds:
            for place, value in zip(kind.places, kind.column(name) or (), strict=False):
                found[place] = value
        return found

    def array(self, name: bytes) -> pa.Array | None:
        """Return the same as Arrow has it; `None` if no entry has it."""
        columns = [(kind.column(name), len(kind.places)) for kind in self._kinds]
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
        """Return the same, null where it is missing."""
        found = self.array(name)
        return pa.nulls(self.count, BYTES) if found is None else found


def _one_kind(entries: Sequence[Sequence[bytes]], places: Sequence[int]) -> list[_Kind]:
    """Return the one kind that all *entries* are of; nothing if there are several."""
    try:
        columns = list(zip(*entries, strict=True))
    except ValueError:
        return []
    if any(len(set(names)) > 1 for names in columns[::2]):
        return []
    names = tuple(each[0] for each in columns[::2])
    return [_Kind(names, places, columns[1::2])]


def _kinds(entries: Sequence[Sequence[bytes]]) -> list[_Kind]:
    lengths: dict[int, list[int]] = {}
    for place, length in enumerate(map(len, entries)):
        lengths.setdefault(length, []).append(place)
    found = []
    for places in lengths.values():
        some = [entries[place] for place in places]
        found += _one_kind(some, places) or _by_names(some, places)
    return found


def _by_names(entries: Sequence[Sequence[bytes]], places: Sequence[int]) -> list[_Kind]:
    kinds: dict[tuple[bytes, ...], list[int]] = {}
    for at, entry in enumerate(entries):
        kinds.setdefault(tuple(entry[::2]), []).append(at)
    return [
        _Kind(
            names,
            [places[at] for at in where],
            list(zip(*(entries[at][1::2] for at in where), strict=True)),
        )
        for names, where in kinds.items()
    ]


def whole_numbers(texts: pa.Array) -> pa.Array | None:
    """Return decimal texts as numbers; `None` if one of them is none."""
    try:
        words = texts.cast(TEXT)
        # Else 0x10 would be one, too.
        return words.cast(LONG) if pc.all(pc.ascii_is_decimal(words)).as_py() is not False else None
    except pa.ArrowInvalid:
        return None


def moments(ids: pa.Array) -> pa.Array:
    """Return the times that entry ids begin with."""
    ends = pc.min_max(pc.find_substring(ids, b"-")).as_py()
    ms = None
    if ends["min"] == ends["max"]:
        # All are as long, as they are for some centuries: no id has to be taken apart.
        ms = whole_numbers(pc.binary_slice(ids, 0, ends["max"]))
    if ms is None:
        far = (int(id.partition(b"-")[0]) for id in ids.to_pylist())
        ms = pa.array([each if each <= _MOST else None for each in far], LONG)
    return clock(ms)
