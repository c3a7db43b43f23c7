"""The columns of a table: for Spark as DDL, for Arrow as a schema, and filled from raw replies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

TEXT: Final = pa.string()
BYTES: Final = pa.binary()
INT: Final = pa.int32()
LONG: Final = pa.int64()
DOUBLE: Final = pa.float64()
BOOL: Final = pa.bool_()
TIME: Final = pa.timestamp("us", tz="UTC")
"""Given as milliseconds since 1970; what no clock shows is null."""

_DDL: Final = {
    TEXT: "STRING",
    BYTES: "BINARY",
    INT: "INT",
    LONG: "BIGINT",
    DOUBLE: "DOUBLE",
    BOOL: "BOOLEAN",
    TIME: "TIMESTAMP",
}
# What Spark can show: the years 1 to 9999.
_EARLIEST_MS, _LATEST_MS = -62_135_596_800_000, 253_402_300_799_999


class Column(NamedTuple):
    """A column: what it is called, of which type it is, what stands in it."""

    name: str
    type: pa.DataType | str
    """Of Arrow; or Spark's DDL, where only Spark knows what that comes to."""
    about: str


class Columns:
    """The columns of one table, in order."""

    def __init__(self, *columns: Column) -> None:
        self._columns = columns

    def __iter__(self) -> Any:
        return iter(self._columns)

    @property
    def queue(self) -> str:
        """The column that names a row's queue: ``queue``, or the first if none is called so."""
        names = [column.name for column in self._columns]
        return "queue" if "queue" in names else names[0]

    @property
    def ddl(self) -> str:
        """The schema as Spark reads it, with what each column is for."""
        return ", ".join(
            f"`{name}` {_DDL.get(kind, kind)} COMMENT '{about.replace(chr(39), chr(39) * 2)}'"
            for name, kind, about in self._columns
        )

    @property
    def arrow(self) -> pa.Schema:
        """The schema as Arrow has it."""
        return pa.schema([(name, kind) for name, kind, _ in self._columns])

    def batch(self, **values: Sequence[Any]) -> pa.RecordBatch:
        """Return rows; every column is named once.

        Texts may be bytes, of whoever's making; a number its column has no room for is null.
        """
        arrays = [_array(values[name], kind) for name, kind, _ in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def constant(value: Any, count: int) -> list[Any]:
    """Return a column that says the same in each of *count* rows."""
    return [value] * count


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values.cast(kind) if values.type != kind else values
    if kind == TEXT:
        return _texts(values)
    if kind == TIME:
        inside = (v is not None and _EARLIEST_MS <= v <= _LATEST_MS for v in values)
        micros = [v * 1000 if ok else None for v, ok in zip(values, inside, strict=True)]
        return pa.array(micros, LONG).cast(TIME)
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError):
        return pa.array([_fitting(value, kind) for value in values], kind)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError):
        return None


def _texts(values: Sequence[Any]) -> pa.Array:
    try:
        # In C, where all is UTF-8; which it nearly always is.
        return pa.array(values, BYTES).cast(TEXT)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return pa.array(_decoded(values), TEXT)


def _decoded(values: Iterable[Any]) -> list[str | None]:
    # Half a surrogate pair is text to Python and JSON, and to nobody else.
    raw = (v.encode(errors="replace") if isinstance(v, str) else v for v in values)
    return [v if v is None else v.decode(errors="replace") for v in raw]
