"""The columns of a table: their DDL for Spark, their Arrow schema, and rows of raw values."""

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
"""Given as milliseconds since 1970; times out of Spark's range are null."""

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
    """A column: its name, type and description."""

    name: str
    type: pa.DataType | str
    """An Arrow type; or DDL that only Spark can parse."""
    about: str


class Columns:
    """The columns of one table, in order."""

    def __init__(self, *columns: Column) -> None:
        self._columns = columns

    def __iter__(self) -> Any:
        return iter(self._columns)

    @property
    def queue(self) -> str:
        """The column with a row's queue: ``queue``, or the first if there is none of that name."""
        names = [column.name for column in self._columns]
        return "queue" if "queue" in names else names[0]

    @property
    def ddl(self) -> str:
        """The schema as Spark's DDL, with descriptions as comments."""
        return ", ".join(
            f"`{name}` {_DDL.get(kind, kind)} COMMENT '{about.replace(chr(39), chr(39) * 2)}'"
            for name, kind, about in self._columns
        )

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema."""
        return pa.schema([(name, kind) for name, kind, _ in self._columns])

    def batch(self, **values: Sequence[Any]) -> pa.RecordBatch:
        """Return rows from the values of all columns.

        Texts may be bytes, valid UTF-8 or not; a number out of its column's range is null.
        """
        arrays = [_array(values[name], kind) for name, kind, _ in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def constant(value: Any, count: int) -> pa.Array:
    """Return a column with the same value in *count* rows."""
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
    """Return milliseconds as times; null for times out of Spark's range."""
    ends = pc.min_max(ms).as_py()
    if ends["min"] is not None and not _EARLIEST_MS <= ends["min"] <= ends["max"] <= _LATEST_MS:
        ms = pa.array([each if _is_shown(each) else None for each in ms.to_pylist()], LONG)
    # A view as milliseconds needs no conversion.
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
        # The fast path in C: nearly always, all values are UTF-8.
        return pa.array(values, BYTES).cast(TEXT)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return pa.array(_decoded(values), TEXT)


def _decoded(values: Iterable[Any]) -> list[str | None]:
    # Python and JSON allow lone surrogates, which UTF-8 cannot encode.
    raw = (v.encode(errors="replace") if isinstance(v, str) else v for v in values)
    return [v if v is None else v.decode(errors="replace") for v in raw]
