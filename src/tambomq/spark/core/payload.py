"""Typed payloads: what stands in the bytes of a row, as columns beside them.

``payload`` says how to read them, ``payloadSchema`` (Spark's DDL) what is expected. The result is
the column ``value``, and ``error`` says what is wrong with it. A row keeps its bytes whatever they
are, and none of them ends a query:

- what cannot be read at all has no value, and an error;
- a field of another type, or outside its type's range, is null, and the error names it;
- a field that is missing is null, and one that nobody asked for is left out: neither is an error;
- a row without bytes has neither value nor error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tambomq.errors import SettingsError
from tambomq.spark.columns import TEXT, Column, Columns
from tambomq.spark.expected import UNREADABLE, Expected, expected, is_key, is_known
from tambomq.spark.options import Given

KINDS: Final = ("bytes", "text", "json", "msgpack")
OPTIONS: Final = ("payload", "payloadSchema")
VALUE: Final = "value"
_MOST_LETTERS: Final = 300


@dataclass(frozen=True, slots=True)
class Payload:
    """How to read the bytes in *column*. Plain values: workers make their decoders themselves."""

    kind: str = "bytes"
    schema: str | None = None
    """What is expected, as Spark's DDL."""
    column: str = "payload"
    error: str = "error"
    """The column for what is wrong; one of that name that is there already is filled up."""
    type: pa.DataType | None = None
    """The same as *schema*, once Spark has read it: see `bound`."""

    @classmethod
    def given(cls, given: Given, column: str, error: str = "error") -> Payload:
        """Return what the options say; raise `SettingsError` if it makes no sense."""
        kind, schema = given.one_of("payload", KINDS, "bytes"), given.text("payloadSchema", None)
        if schema is not None and kind not in ("json", "msgpack"):
            raise given.wrong("payload", "json or msgpack where there is a payloadSchema", kind)
        return cls(kind, schema, column, error)

    def columns(self, columns: Columns) -> Columns:
        """Return *columns* with those that are added."""
        if self.kind == "bytes":
            return columns
        there = {each.name for each in columns}
        if self.column not in there:
            raise SettingsError(f"the option payload is not for this table: no {self.column} in it")
        kind = TEXT if self.schema is None else f"STRUCT<{self.schema}>"
        about = {"text": "as text"}.get(self.kind, "as JSON" if kind is TEXT else "by its schema")
        added = [Column(VALUE, kind, f"the {self.column} {about}")]
        if self.error not in there:
            added.append(Column(self.error, TEXT, f"what is wrong with the {self.column}"))
        return Columns(*columns, *added)

    def bound(self, schema: StructType) -> Payload:
        """Return the same with the type that Spark has read from the DDL."""
        if self.kind == "bytes" or self.schema is None:
            return self
        found = schema[VALUE].dataType
        _check(found, VALUE)
        return replace(self, type=arrow_type(found))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return *batch* with its bytes read."""
        if self.kind == "bytes":
            return batch
        bodies = batch.column(self.column).to_pylist()
        values, errors = self._read(bodies)
        fields, arrays = list(batch.schema), list(batch.columns)
        names = batch.schema.names
        if self.error in names:
            place = names.index(self.error)
            told = arrays[place].to_pylist()
            both = [old or new for old, new in zip(told, errors, strict=True)]
            arrays[place] = pa.array(both, TEXT)
            return _batch([*fields, pa.field(VALUE, values.type)], [*arrays, values])
        added = [pa.field(VALUE, values.type), pa.field(self.error, TEXT)]
        return _batch([*fields, *added], [*arrays, values, pa.array(errors, TEXT)])

    def _read(self, bodies: Sequence[bytes | None]) -> tuple[pa.Array, list[str | None]]:
        if self.type is not None:
            return _typed(expected(self.kind, self.type), bodies)
        read = _READ[self.kind]
        values: list[str | None] = []
        errors: list[str | None] = []
        for body in bodies:
            value = error = None
            try:
                value = None if body is None else read(body)
            except UNREADABLE as reason:
                error = short(reason)
            values.append(value)
            errors.append(error)
        return pa.array(values, TEXT), errors


def short(reason: object) -> str:
    """Return *reason* as one line of bearable length."""
    line = " ".join(str(reason).split())
    return line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}…"


def _typed(reader: Expected, bodies: Sequence[bytes | None]) -> tuple[pa.Array, list[str | None]]:
    values: list[Any] = []
    errors: list[str | None] = []
    for body in bodies:
        value = error = None
        if body is not None:
            try:
                value = reader.decode(body)
            except UNREADABLE:
                value, error = _mended(reader, body)
        values.append(value)
        errors.append(error)
    try:
        return pa.array(values, reader.arrow), errors
    except UNREADABLE:
        # What Arrow refuses (a decimal with too many digits) it does not point at.
        mended = [(None, None) if body is None else _mended(reader, body) for body in bodies]
        return pa.array([value for value, _ in mended], reader.arrow), [told for _, told in mended]


def _mended(reader: Expected, body: bytes) -> tuple[Any, str | None]:
    try:
        value, problems = reader.mend(body)
    except UNREADABLE as reason:
        return None, short(reason)
    return value, short("; ".join(problems)) if problems else None


def _json_text(body: bytes) -> str:
    text = body.decode()
    msgspec.json.decode(body, type=msgspec.Raw)
    return text


def _msgpack_text(body: bytes) -> str:
    return msgspec.json.encode(msgspec.msgpack.decode(body)).decode()


_READ: Final[dict[str, Callable[[bytes], str]]] = {
    "text": bytes.decode,
    "json": _json_text,
    "msgpack": _msgpack_text,
}


def _batch(fields: list[pa.Field], arrays: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _check(found: DataType, path: str) -> None:
    """Raise `SettingsError` for what no payload can promise."""
    if isinstance(found, StructType):
        if not found.fields or len(set(found.names)) < len(found.names):
            raise SettingsError(f"payloadSchema: the fields of {path} must be some, and differ")
        for field in found.fields:
            if not field.nullable:
                raise SettingsError(
                    f"payloadSchema: {path}.{field.name} cannot be NOT NULL: payloads are not ours"
                )
            _check(field.dataType, f"{path}.{field.name}")
    elif isinstance(found, ArrayType):
        _check(found.elementType, f"{path}[]")
    elif isinstance(found, MapType):
        if not is_key(arrow_type(found.keyType)):
            raise SettingsError(f"payloadSchema: the keys of {path} must be STRING or INT")
        _check(found.valueType, f"{path}[]")
    elif not is_known(arrow_type(found)):
        raise SettingsError(f"payloadSchema: {path} cannot be {found.simpleString()}")


def arrow_type(found: DataType) -> pa.DataType:
    """Return what Arrow calls a type of Spark's; the type of null for what it does not know."""
    try:
        return to_arrow_type(found, timezone="UTC")
    except TypeError:
        # Nothing can be that, and so no field may be.
        return pa.null()
