"""The columns of a table: for Spark as DDL, for Arrow as a schema, and filled from raw replies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

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
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")


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

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema as Arrow has it."""
        return pa.schema([(name, kind) for name, kind, _ in self._columns])

    def batch(self, **values: Sequence[Any]) -> pa.RecordBatch:
        """Return rows; every column is named once.

        Texts may be bytes, of whoever's making; a number its column has no room for is null.
        """
        arrays = [_array(values[name], kind) for name, kind, _ in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def constant(value: Any, count: int) -> pa.Array:
    """Return a column that says the same in each of *count* rows."""
    return pa.nulls(count) if value is None else pa.repeat(value, count)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values if values.type == kind else _cast(values, kind)
    if kind == TEXT:
        return _texts(values)
    if kind == TIME:
        try:
            return clock(pa.array(values, LONG))
        except OverflowError:
            return clock(pa.array([v if _is_shown(v) else None for v in values], LONG))
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError):
        return pa.array([_fitting(value, kind) for value in values], kind)


def clock(ms: pa.Array) -> pa.Array:
    """Return milliseconds as times; what no clock shows is null."""
    ends = pc.min_max(ms).as_py()
    if ends["min"] is not None and not _EARLIEST_MS <= ends["min"] <= ends["max"] <= _LATEST_MS:
        ms = pa.array([each if _is_shown(each) else None for each in ms.to_pylist()], LONG)
    # Seen as what they are, they need no arithmetic.
    return ms.view(_MILLISECONDS).cast(TIME)


def _is_shown(ms: int | None) -> bool:
    return ms is not None and _EARLIEST_MS <= ms <= _LATEST_MS


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if kind == TIME and values.type == LONG:
        return clock(values)
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        return _array(values.to_pylist(), kind)


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
