"""Typed payloads: valid ones are decoded, invalid ones reported, and the bytes stay."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from tambomq.errors import SettingsError
from tambomq.spark.core import schemas
from tambomq.spark.core.columns import BYTES, TEXT, Column, Columns
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.payload import OPTIONS, PayloadDecoder

ROWS = Columns(Column("queue", TEXT, "q"), Column("body", BYTES, "b"))
NOW = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
CODECS = {"json": msgspec.json.encode, "msgpack": msgspec.msgpack.encode}


def batch(*bodies: bytes | None) -> pa.RecordBatch:
    return ROWS.batch(queue=["q"] * len(bodies), body=bodies)


def bound(kind: str, *fields: tuple[str, t.DataType]) -> PayloadDecoder:
    value = t.StructType([t.StructField(*each) for each in fields])
    spark = t.StructType([t.StructField("value", value)])
    return PayloadDecoder(kind, "some DDL", "body").bound(spark)


def read(payload: PayloadDecoder, *bodies: bytes | None) -> list[tuple[Any, str | None]]:
    """Value and error of each row, whose bytes are what they were."""
    found = payload.apply(batch(*bodies))
    assert found.schema.names == ["queue", "body", "value", "error"]
    assert found.column("body").to_pylist() == list(bodies)
    found.validate(full=True)
    return list(
        zip(found.column("value").to_pylist(), found.column("error").to_pylist(), strict=True)
    )


def one(kind: t.DataType, value: Any, codec: str = "json") -> tuple[Any, str | None]:
    """What becomes of *value* where *kind* is expected."""
    ((found, error),) = read(bound(codec, ("f", kind)), CODECS[codec]({"f": value}))
    return found["f"], error


# ── without a schema ─────────────────────────────────────────────────────────


def test_without_the_option_payload_rows_are_unchanged() -> None:
    rows = batch(b"x")
    assert PayloadDecoder().apply(rows) is rows
    assert PayloadDecoder().columns(ROWS) is ROWS


def test_text_is_text_or_an_error() -> None:
    good, bad, missing, empty = read(
        PayloadDecoder("text", column="body"), "é".encode(), b"\xff", None, b""
    )
    assert good == ("é", None)
    assert bad[0] is None
    assert "utf-8" in str(bad[1])
    assert (missing, empty) == ((None, None), ("", None))


def test_json_stays_as_it_was_written() -> None:
    text = b'{"b": 1.50, "a": [null]}'
    good, *bad = read(
        PayloadDecoder("json", column="body"), text, b"{", b"", b'"\xff"', b"[" * 100_000
    )
    assert good == (text.decode(), None)
    assert all(value is None and error for value, error in bad)


def test_msgpack_becomes_json() -> None:
    value = {"a": [1, None, 2.5], "b": b"hi", "t": NOW, 7: True}
    good, *bad = read(
        PayloadDecoder("msgpack", column="body"),
        msgspec.msgpack.encode(value),
        b"\xc1",
        b"\x92\x01",
        msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x")),
    )
    assert json.loads(good[0]) == {
        "a": [1, None, 2.5],
        "b": "aGk=",
        "t": "2024-05-06T07:08:09.123456Z",
        "7": True,
    }
    assert all(found is None and error for found, error in bad)


@pytest.mark.parametrize("kind", ["text", "json", "msgpack"])
@given(bodies=st.lists(st.none() | st.binary(max_size=20), max_size=5))
def test_no_bytes_make_the_decoder_raise(kind: str, bodies: list[bytes | None]) -> None:
    for value, error in read(PayloadDecoder(kind, column="body"), *bodies):
        assert value is None or error is None


# ── with a schema ────────────────────────────────────────────────────────────

ADDRESS = t.StructType(
    [t.StructField("city", t.StringType()), t.StructField("zip", t.IntegerType())]
)
ORDER = (
    ("id", t.LongType()),
    ("name", t.StringType()),
    ("price", t.DecimalType(10, 2)),
    ("ratio", t.DoubleType()),
    ("paid", t.BooleanType()),
    ("at", t.TimestampType()),
    ("day", t.DateType()),
    ("to", ADDRESS),
    ("tags", t.ArrayType(t.StringType())),
    ("parts", t.ArrayType(ADDRESS)),
    ("counts", t.MapType(t.StringType(), t.IntegerType())),
    ("blob", t.BinaryType()),
)
WHOLE = {
    "id": 2**62,
    "name": "é",
    "price": "12.50",
    "ratio": 1,
    "paid": True,
    "at": NOW.isoformat(),
    "day": "2024-02-29",
    "to": {"city": "Kyiv", "zip": None},
    "tags": ["a", None],
    "parts": [{"city": "x"}, {"zip": 1}],
    "counts": {"a": 1, "b": None},
    "blob": b"hi",
    "unknown": {"to": ["anybody"]},
}


@pytest.mark.parametrize("codec", CODECS)
def test_a_payload_that_matches_its_schema_is_decoded_completely(codec: str) -> None:
    ((value, error),) = read(bound(codec, *ORDER), CODECS[codec](WHOLE))
    assert error is None
    assert value == {
        "id": 2**62,
        "name": "é",
        "price": Decimal("12.50"),
        "ratio": 1.0,
        "paid": True,
        "at": NOW,
        "day": date(2024, 2, 29),
        "to": {"city": "Kyiv", "zip": None},
        "tags": ["a", None],
        "parts": [{"city": "x", "zip": None}, {"city": None, "zip": 1}],
        "counts": [("a", 1), ("b", None)],
        "blob": b"hi",
    }


@pytest.mark.parametrize("codec", CODECS)
def test_a_missing_field_is_null_and_an_unknown_one_left_out(codec: str) -> None:
    body = CODECS[codec]({"name": None, "zzz": 1})
    ((value, error),) = read(bound(codec, *ORDER), body)
    assert error is None
    assert set(value.values()) == {None}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (t.IntegerType(), "1"),
        (t.IntegerType(), 1.5),
        (t.IntegerType(), True),
        (t.IntegerType(), 2**31),
        (t.ByteType(), 128),
        (t.ShortType(), -(2**15) - 1),
        (t.LongType(), 2**63),
        (t.StringType(), 1),
        (t.StringType(), ["x"]),
        (t.DoubleType(), "1"),
        (t.BooleanType(), 1),
        (t.BooleanType(), "true"),
        (t.BinaryType(), "?"),
        (t.DateType(), "yesterday"),
        (t.DateType(), 19000),
        (t.TimestampType(), "soon"),
        (t.TimestampType(), 10**30),
        (t.TimestampType(), True),
        (t.TimestampType(), [1]),
        (t.TimestampType(), -(10**10) * 9),
        (t.DecimalType(4, 2), "1.234"),
        (t.DecimalType(4, 2), "1234"),
        (t.DecimalType(4, 2), "much"),
        (ADDRESS, "Kyiv"),
        (ADDRESS, [1]),
        (t.ArrayType(t.StringType()), "x"),
        (t.ArrayType(t.StringType()), {"a": "b"}),
        (t.MapType(t.StringType(), t.IntegerType()), [1]),
    ],
)
def test_a_field_of_another_type_is_null(kind: t.DataType, value: Any, codec: str) -> None:
    if value == 10**30 and codec == "msgpack":
        value = 1e30
    found, error = one(kind, value, codec)
    assert found is None
    assert str(error).startswith("f: ")


def test_an_error_has_a_path_and_the_rest_is_kept() -> None:
    body = msgspec.json.encode(
        {
            **WHOLE,
            "id": "x",
            "to": {"city": 5, "zip": 6},
            "parts": [{"zip": "?"}, 4],
            "counts": {"a": "b"},
        }
    )
    ((value, error),) = read(bound("json", *ORDER), body)
    assert value["name"] == "é"
    assert value["at"] == NOW
    assert value["to"] == {"city": None, "zip": 6}
    assert value["parts"] == [{"city": None, "zip": None}, None]
    assert value["counts"] == [("a", None)]
    assert [each.split(":")[0] for each in str(error).split("; ")] == [
        "id",
        "to.city",
        "parts[0].zip",
        "parts[1]",
        "counts['a']",
    ]


@pytest.mark.parametrize(
    "body", [b"[]", b"1", b'"x"', b"null", b"{", b"", b'{"f": "\xff"}', b"[" * 99_999]
)
def test_a_payload_that_is_not_an_object_has_no_value(body: bytes) -> None:
    ((value, error),) = read(bound("json", ("f", t.StringType())), body)
    assert value is None
    assert error is not None or body == b"null"


def test_one_bad_row_leaves_the_others_alone() -> None:
    payload = bound("json", ("f", t.DecimalType(4, 2)))
    found = read(payload, b'{"f": 1}', b'{"f": 1.234}', None, b"{", b'{"f": "x"}', b'{"f": 2}')
    assert [value and value["f"] for value, _ in found] == [
        Decimal(1),
        None,
        None,
        None,
        None,
        Decimal(2),
    ]
    assert [error is None for _, error in found] == [True, False, True, False, False, True]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2024-05-06T07:08:09.123456+00:00", NOW),
        ("2024-05-06T09:08:09.123456+02:00", NOW),
        ("2024-05-06T07:08:09.123456Z", NOW),
        ("2024-05-06 07:08:09.123456", NOW),
        ("2024-05-06", datetime(2024, 5, 6, tzinfo=UTC)),
        (1714979289, NOW.replace(microsecond=0)),
        (1714979289.5, NOW.replace(microsecond=500_000)),
        (1714979289123, NOW.replace(microsecond=123_000)),
        (1714979289123456, NOW),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_times_are_iso_text_or_numbers_since_1970(value: Any, expected: datetime) -> None:
    assert one(t.TimestampType(), value) == (expected, None)
    assert one(t.TimestampNTZType(), value) == (expected.replace(tzinfo=None), None)


@given(st.datetimes(datetime(1974, 1, 1), datetime(5000, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001  (the zone follows)
def test_no_time_is_read_in_a_wrong_unit(at: datetime) -> None:
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    for unit in (timedelta(seconds=1), timedelta(milliseconds=1), timedelta(microseconds=1)):
        found, error = one(t.TimestampType(), since // unit)
        assert error is None
        assert timedelta(0) <= at - found < unit


def test_a_time_of_msgpacks_own_is_a_time() -> None:
    assert one(t.TimestampType(), NOW, "msgpack") == (NOW, None)


def test_keys_of_maps_may_be_numbers() -> None:
    kind = t.MapType(t.IntegerType(), t.StringType())
    assert one(kind, {"1": "a"}) == ([(1, "a")], None)
    assert one(kind, {1: "a"}, "msgpack") == ([(1, "a")], None)
    found, error = one(kind, {"1": "a", "x": "b"})
    assert found == [(1, "a")]
    assert "the key 'x'" in str(error)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(st.fixed_dictionaries({}, optional={name: JSON for name, _ in ORDER}), max_size=4))
def test_values_have_the_type_of_the_schema_for_any_json(values: list[Any]) -> None:
    found = bound("json", *ORDER)
    bodies = [json.dumps(value).encode() for value in values]
    for (value, error), given_value in zip(read(found, *bodies), values, strict=True):
        assert value is not None or error is not None
        if error is None:
            assert all(
                value[name] is not None for name, was in given_value.items() if was is not None
            )


def test_an_error_is_short() -> None:
    names = [f"f{n}" for n in range(100)]
    payload = bound("json", *((name, t.IntegerType()) for name in names))
    ((_, error),) = read(payload, msgspec.json.encode(dict.fromkeys(names, "x" * 1000)))
    assert len(str(error)) < 310


# ── columns and options ──────────────────────────────────────────────────────


def test_the_added_columns_are_announced() -> None:
    ddl = PayloadDecoder("json", "a INT, b: STRING", "body").columns(ROWS).ddl
    assert ddl.startswith(ROWS.ddl)
    assert "`value` STRUCT<a INT, b: STRING> COMMENT" in ddl
    assert "`error` STRING COMMENT" in ddl
    assert "`value` STRING" in PayloadDecoder("msgpack", column="body").columns(ROWS).ddl


def test_an_error_that_is_there_already_is_kept() -> None:
    payload = PayloadDecoder("json")
    columns = payload.columns(schemas.GOMQ_MAIN)
    assert [each.name for each in columns].count("error") == 1
    empty: dict[str, Any] = {each.name: [None] * 3 for each in schemas.GOMQ_MAIN}
    rows = schemas.GOMQ_MAIN.batch(
        **{**empty, "payload": [None, b"{", b"1"], "error": ["old", None, None]}
    )
    found = payload.apply(rows)
    assert found.schema.names == [each.name for each in columns]
    old, new, none = found.column("error").to_pylist()
    assert (old, bool(new), none) == ("old", True, None)


def test_a_table_without_such_bytes_is_refused() -> None:
    with pytest.raises(SettingsError, match="payload is not for this table: no body in it"):
        PayloadDecoder("json", column="body").columns(schemas.RSMQ_QUEUES)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"payload": "xml"}, "payload must be one of bytes, text, json, msgpack, not 'xml'"),
        ({"payloadSchema": "a INT"}, "json or msgpack where there is a payloadSchema"),
        ({"payload": "text", "payloadSchema": "a INT"}, "json or msgpack where"),
        ({"payload": "json", "payloadSchema": ""}, "payloadSchema is missing"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        PayloadDecoder.from_options(SourceOptions("rsmq", options, OPTIONS), "body")


@pytest.mark.parametrize(
    ("field", "match"),
    [
        (t.StructField("a", t.IntegerType(), nullable=False), "value.a cannot be NOT NULL"),
        (t.StructField("a", t.DayTimeIntervalType()), "value.a cannot be interval"),
        (t.StructField("a", t.ArrayType(t.YearMonthIntervalType())), "value.a"),
        (t.StructField("a", t.MapType(t.DoubleType(), t.StringType())), "keys of value.a must be"),
        (t.StructField("a", t.StructType([])), "value.a must have fields"),
    ],
)
def test_a_schema_that_no_payload_can_keep_is_refused(field: t.StructField, match: str) -> None:
    schema = t.StructType([t.StructField("value", t.StructType([field]))])
    with pytest.raises(SettingsError, match=match):
        PayloadDecoder("json", "…", "body").bound(schema)


def test_a_payload_decoder_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(bound("json", *ORDER).apply))  # noqa: S301  (our own)
    assert again(batch(b'{"id": 1}')).column("value").to_pylist()[0]["id"] == 1
