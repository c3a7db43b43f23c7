"""Rows on their way into a queue: which columns there may be, and how rows are cut into chunks.

Chunks are cut by counting rows and bytes alone, so that the same rows in the same order make the
same chunks, whatever batches Spark hands them over in.
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
from tambomq.spark.columns import Columns

MOST_ROWS: Final = 1000
MOST_BYTES: Final = 1 << 20
"""A script keeps the server from everybody else: 1000 rows take it 1 to 3 ms."""

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
"""What Spark calls the types that `schemas` names for columns that are written."""


def plain(column: pa.Array) -> list[Any]:
    """Return the values as they are in Python."""
    found: list[Any] = column.to_pylist()
    return found


def as_bytes(column: pa.Array) -> list[bytes | None]:
    """Return texts as UTF-8, and bytes as they are."""
    return plain(column.cast(pa.binary()))


def as_floats(column: pa.Array) -> list[float | None]:
    """Return numbers of any type: SQL has decimals where Python has floats."""
    return plain(column.cast(pa.float64()))


def as_ms(column: pa.Array) -> list[int | None]:
    """Return times as milliseconds since 1970; those without a zone are in UTC."""
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return [None if each is None else each // 1000 for each in micros.to_pylist()]


class Field(NamedTuple):
    """A column that may be written: its name, its types, and how it is read."""

    name: str
    type: str
    read: Callable[[pa.Array], list[Any]] = plain

    def takes(self, kind: str) -> bool:
        """Whether it may be of the type that Spark calls *kind*."""
        return any(kind in _KINDS[each] for each in self.type.split(" or "))


def fields(columns: Columns, **read: Callable[[pa.Array], list[Any]]) -> tuple[Field, ...]:
    """Return *columns* with how they are read: as they are, unless *read* says it."""
    return tuple(Field(name, kind, read.get(name, plain)) for name, kind, _ in columns)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows, column by column. *first* counts those of the partition before them."""

    columns: dict[str, list[Any]]
    first: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def get(self, name: str) -> list[Any]:
        """Return a column; nothing but `None` if it was not given."""
        return self.columns.get(name) or [None] * len(self)

    def picked(self, places: Sequence[int]) -> Rows:
        """Return the rows at *places*."""
        return Rows({n: [v[p] for p in places] for n, v in self.columns.items()}, self.first)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each column stands. *body* is the one that rows are measured by."""

    body: str
    places: dict[str, int]
    fields: dict[str, Field]
    kinds: dict[str, str]
    most_rows: int = MOST_ROWS

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        """Yield chunks of at most `most_rows` rows, and `MOST_BYTES` unless it is one row."""
        held: dict[str, list[Any]] = {name: [] for name in self.places}
        first, size = 0, 0
        for piece in self._pieces(batches):
            bodies, start = piece[self.body], 0
            ends = list(accumulate((len(body) if body else 0 for body in bodies), initial=0))
            while True:
                count = len(held[self.body])
                end = min(start + self.most_rows - count, len(bodies))
                most = ends[start] + MOST_BYTES - size
                if ends[end] > most:
                    end = max(bisect_right(ends, most) - 1, start if count else start + 1)
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
            # As many at once as make a chunk: lists take more room than what Arrow has.
            for start in range(0, batch.num_rows, MOST_ROWS):
                piece = batch.slice(start, MOST_ROWS)
                yield {
                    name: self.fields[name].read(piece.column(place))
                    for name, place in self.places.items()
                }


def _moved(
    held: dict[str, list[Any]], piece: dict[str, list[Any]], start: int, end: int
) -> dict[str, list[Any]]:
    """Return what is *held* and *piece* from *start* to *end*; hold nothing any more."""
    whole = {name: values + piece[name][start:end] for name, values in held.items()}
    for name in held:
        held[name] = []
    return whole


def layout(
    source: str, fields: Sequence[Field], bodies: Sequence[str], schema: StructType
) -> Layout:
    """Return where *fields* stand in *schema*; raise `SettingsError` for one that does not fit.

    One of *bodies* must be there. Names may be in upper or lower case, as in Spark.
    """
    known = {field.name: field for field in fields}
    there_are = f"there are {', '.join(known)}"
    places: dict[str, int] = {}
    for place, column in enumerate(schema.fields):
        name, kind = column.name.lower(), column.dataType
        if name not in known:
            raise _unfit(source, f"no column {column.name}; {there_are}")
        if name in places:
            raise _unfit(source, f"the column {name} is there twice")
        if not known[name].takes(kind.typeName()):
            # Of a nested type, the name is enough.
            shown = kind.simpleString().partition("<")[0].upper()
            raise _unfit(source, f"the column {name} must be {known[name].type}, not {shown}")
        places[name] = place
    found = [name for name in bodies if name in places]
    if len(found) != 1:
        fault = "give only one of the columns" if found else "there must be a column"
        raise _unfit(source, f"{fault} {' or '.join(bodies)}; {there_are}")
    kinds = {name: schema.fields[place].dataType.typeName() for name, place in places.items()}
    return Layout(found[0], places, {name: known[name] for name in places}, kinds)


def _unfit(source: str, fault: str) -> SettingsError:
    return SettingsError(f"format {source!r}: these rows cannot be written: {fault}")
