"""The columns that may be written, and the chunks that rows are split into.

Rows are split by count and bytes only, so the same rows in the same order always make the same
chunks, whatever Arrow batches Spark delivers them in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from tambomq.errors import SettingsError
from tambomq.spark.core.columns import Columns

MAX_ROWS: Final = 1000
MAX_BYTES: Final = 1 << 20
"""Limits of a chunk: its script blocks Redis, for 1 to 3 ms at 1000 rows."""

_WHOLE: Final = ("byte", "short", "integer", "long")
_NUMBER: Final = (*_WHOLE, "float", "double", "decimal")
_MOMENT: Final = ("timestamp", "timestamp_ntz")
_OTHERS: Final = ("string", "binary", "struct", "map", "array", "boolean", "date")
_KINDS: Final = {
    "STRING": ("string",),
    "BINARY": ("binary",),
    "STRUCT": ("struct",),
    "TIMESTAMP": _MOMENT,
    "whole number": _WHOLE,
    "number": _NUMBER,
    "any type": (*_OTHERS, *_NUMBER, *_MOMENT),
}
"""Spark's names of the types that `schemas` gives to written columns."""


def lengths(bodies: Sequence[bytes | None], missing: int = 0) -> list[int]:
    """Return the length of each body, *missing* for `None`."""
    try:
        # The fast path in C: nearly always, all rows have a body.
        return list(map(len, bodies))  # type: ignore[arg-type]
    except TypeError:
        return [missing if body is None else len(body) for body in bodies]


def plain(column: pa.Array) -> list[Any]:
    """Return the values as Python objects."""
    found: list[Any] = column.to_pylist()
    return found


def as_bytes(column: pa.Array) -> list[bytes | None]:
    """Return texts as UTF-8, and bytes as they are."""
    return plain(column.cast(pa.binary()))


def as_floats(column: pa.Array) -> list[float | None]:
    """Return numbers of any type as floats: numeric literals in SQL are decimals."""
    return plain(column.cast(pa.float64()))


def as_ms(column: pa.Array) -> list[int | None]:
    """Return times as milliseconds since 1970; those without a zone are in UTC."""
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return [None if each is None else each // 1000 for each in micros.to_pylist()]


class Field(NamedTuple):
    """A column that may be written: its name, types and conversion."""

    name: str
    type: str
    read: Callable[[pa.Array], list[Any]] = plain

    def takes(self, kind: str) -> bool:
        """Whether it may be of the type that Spark calls *kind*."""
        return any(kind in _KINDS[each] for each in self.type.split(" or "))


def fields(columns: Columns, **read: Callable[[pa.Array], list[Any]]) -> tuple[Field, ...]:
    """Return *columns* with their conversions: `plain`, unless *read* names another."""
    return tuple(Field(name, kind, read.get(name, plain)) for name, kind, _ in columns)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows, by column. *first* is the index of the first one in its partition."""

    columns: dict[str, list[Any]]
    first: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def get(self, name: str) -> list[Any]:
        """Return a column; all `None` if it was not given."""
        return self.columns.get(name) or [None] * len(self)

    def picked(self, indexes: Sequence[int]) -> Rows:
        """Return the rows at *indexes*."""
        return Rows({n: [v[i] for i in indexes] for n, v in self.columns.items()}, self.first)


@dataclass(frozen=True, slots=True)
class Layout:
    """The index of each column. *body* is the one that counts for a row's size."""

    body: str
    indexes: dict[str, int]
    fields: dict[str, Field]
    kinds: dict[str, str]
    max_rows: int = MAX_ROWS

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        """Yield chunks of at most `max_rows` rows, and `MAX_BYTES` unless it is one row."""
        held: dict[str, list[Any]] = {name: [] for name in self.indexes}
        first, size = 0, 0
        for piece in self._pieces(batches):
            bodies, start = piece[self.body], 0
            ends = list(accumulate(lengths(bodies), initial=0))
            while True:
                count = len(held[self.body])
                end = min(start + self.max_rows - count, len(bodies))
                max_end = ends[start] + MAX_BYTES - size
                if ends[end] > max_end:
                    end = max(bisect_right(ends, max_end) - 1, start if count else start + 1)
                if end == len(bodies):
                    break
                yield Rows(_moved(held, piece, start, end), first)
                first, size, start = first + count + end - start, 0, end
            for name, values in piece.items():
                held[name] += values[start:]
            size += ends[-1] - ends[start]
        if held[self.body]:
            yield Rows(held, first)

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, list[Any]]]:
        for batch in batches:
            # One chunk at a time: Python lists take more memory than Arrow arrays.
            for start in range(0, batch.num_rows, MAX_ROWS):
                piece = batch.slice(start, MAX_ROWS)
                yield {
                    name: self.fields[name].read(piece.column(index))
                    for name, index in self.indexes.items()
                }


def _moved(
    held: dict[str, list[Any]], piece: dict[str, list[Any]], start: int, end: int
) -> dict[str, list[Any]]:
    """Return *held* joined with *piece* from *start* to *end*; empty *held*."""
    whole = {name: values + piece[name][start:end] for name, values in held.items()}
    for name in held:
        held[name] = []
    return whole


def layout(
    source: str, fields: Sequence[Field], bodies: Sequence[str], schema: StructType
) -> Layout:
    """Return the layout of *fields* in *schema*; raise `SettingsError` for one that does not fit.

    Exactly one of *bodies* must be there. Names are case-insensitive, as in Spark.
    """
    known = {field.name: field for field in fields}
    there_are = f"there are {', '.join(known)}"
    indexes: dict[str, int] = {}
    for index, column in enumerate(schema.fields):
        name, kind = column.name.lower(), column.dataType
        if name not in known:
            raise _unfit(source, f"no column {column.name}; {there_are}")
        if name in indexes:
            raise _unfit(source, f"the column {name} is there twice")
        if not known[name].takes(kind.typeName()):
            # Show nested types by their name only.
            shown = kind.simpleString().partition("<")[0].upper()
            raise _unfit(source, f"the column {name} must be {known[name].type}, not {shown}")
        indexes[name] = index
    found = [name for name in bodies if name in indexes]
    if len(found) != 1:
        fault = "give only one of the columns" if found else "there must be a column"
        raise _unfit(source, f"{fault} {' or '.join(bodies)}; {there_are}")
    kinds = {name: schema.fields[index].dataType.typeName() for name, index in indexes.items()}
    return Layout(found[0], indexes, {name: known[name] for name in indexes}, kinds)


def _unfit(source: str, fault: str) -> SettingsError:
    return SettingsError(f"format {source!r}: these rows cannot be written: {fault}")
