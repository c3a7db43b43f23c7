"""Typed payloads: decodes the bytes of a row into a column ``value`` beside them.

``payload`` names the encoding, ``payloadSchema`` (Spark's DDL) the expected type. Problems go to
the column ``error``. A row always keeps its bytes, and no payload fails a query:

- bytes that cannot be decoded have no value, and an error;
- a field of another type, or outside its type's range, is null, and the error names it;
- a missing field is null, and an unexpected one is left out: neither is an error;
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
from tambomq.spark.core.columns import TEXT, Column, Columns
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.payload_types import (
    UNREADABLE,
    TypedDecoder,
    is_key,
    is_known,
    typed_decoder,
)

KINDS: Final = ("bytes", "text", "json", "msgpack")
OPTIONS: Final = ("payload", "payloadSchema")
VALUE: Final = "value"
_MAX_LETTERS: Final = 300


@dataclass(frozen=True, slots=True)
class PayloadDecoder:
    """Decodes the bytes in *column*. Picklable: workers create the actual decoders."""

    kind: str = "bytes"
    schema: str | None = None
    """The expected type, as Spark's DDL."""
    column: str = "payload"
    error: str = "error"
    """The column for errors; an existing one of that name keeps its own errors."""
    type: pa.DataType | None = None
    """*schema* as an Arrow type, once Spark has parsed it: see `bound`."""

    @classmethod
    def from_options(
        cls, options: SourceOptions, column: str, error: str = "error"
    ) -> PayloadDecoder:
        """Parse the options; raise `SettingsError` if they are invalid."""
        kind, schema = (
            options.one_of("payload", KINDS, "bytes"),
            options.text("payloadSchema", None),
        )
        if schema is not None and kind not in ("json", "msgpack"):
            raise options.wrong("payload", "json or msgpack where there is a payloadSchema", kind)
        return cls(kind, schema, column, error)

    def columns(self, columns: Columns) -> Columns:
        """Return *columns* and those that decoding adds."""
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

    def bound(self, schema: StructType) -> PayloadDecoder:
        """Return a copy with the type that Spark has parsed from the DDL."""
        if self.kind == "bytes" or self.schema is None:
            return self
        found = schema[VALUE].dataType
        _check(found, VALUE)
        return replace(self, type=arrow_type(found))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return *batch* with its payloads decoded."""
        if self.kind == "bytes":
            return batch
        bodies = batch.column(self.column).to_pylist()
        values, errors = self._read(bodies)
        fields, arrays = list(batch.schema), list(batch.columns)
        names = batch.schema.names
        if self.error in names:
            index = names.index(self.error)
            existing = arrays[index].to_pylist()
            both = [old or new for old, new in zip(existing, errors, strict=True)]
            arrays[index] = pa.array(both, TEXT)
            return _batch([*fields, pa.field(VALUE, values.type)], [*arrays, values])
        added = [pa.field(VALUE, values.type), pa.field(self.error, TEXT)]
        return _batch([*fields, *added], [*arrays, values, pa.array(errors, TEXT)])

    def _read(self, bodies: Sequence[bytes | None]) -> tuple[pa.Array, list[str | None]]:
        if self.type is not None:
            return _typed(typed_decoder(self.kind, self.type), bodies)
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
    """Return *reason* as one line of limited length."""
    line = " ".join(str(reason).split())
    return line if len(line) <= _MAX_LETTERS else f"{line[:_MAX_LETTERS]}…"


def _typed(
    reader: TypedDecoder, bodies: Sequence[bytes | None]
) -> tuple[pa.Array, list[str | None]]:
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
        # Arrow does not say which value it refuses (a decimal with too many digits): try each.
        mended = [(None, None) if body is None else _mended(reader, body) for body in bodies]
        return pa.array([value for value, _ in mended], reader.arrow), [
            error for _, error in mended
        ]


def _mended(reader: TypedDecoder, body: bytes) -> tuple[Any, str | None]:
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
    """Raise `SettingsError` for types that payloads cannot have."""
    if isinstance(found, StructType):
        if not found.fields or len(set(found.names)) < len(found.names):
            raise SettingsError(f"payloadSchema: {path} must have fields, with different names")
        for field in found.fields:
            if not field.nullable:
                raise SettingsError(
                    f"payloadSchema: {path}.{field.name} cannot be NOT NULL: a payload may lack it"
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
    """Return the Arrow type of a Spark type; the null type if there is none."""
    try:
        return to_arrow_type(found, timezone="UTC")
    except TypeError:
        # The null type is refused for every field.
        return pa.null()
