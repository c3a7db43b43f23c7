"""Data survives encoding in a known form, or is refused with a hint."""

from __future__ import annotations

import enum
import uuid
from collections import deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tambomq.chasqui.wire.msgpack import decode_payload, encode_payload
from tambomq.errors import InvalidPayload


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Order:
    id: int
    total: Decimal


class Point(NamedTuple):
    x: int


ID = uuid.UUID("12345678123456781234567812345678")
SUMMER = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("given", "comes_back"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=SUMMER), datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
        (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),  # noqa: DTZ001  (that is the case)
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03:04:00"),
        (timedelta(seconds=90), "PT90S"),
        (ID, str(ID)),
        (Decimal("1.50"), "1.50"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ({7}, [7]),
        (frozenset({7}), [7]),
        ((1, 2), [1, 2]),
        (Point(1), [1]),
        (Order(1, Decimal("2.5")), {"id": 1, "total": "2.5"}),
        (bytearray(b"x"), b"x"),
    ],
)
def test_an_instance_of_a_subclass_is_decoded_as_its_base_type(given: Any, comes_back: Any) -> None:
    assert decode_payload(encode_payload({"a": [given]})) == {"a": [comes_back]}


class Model:
    """As pydantic's are."""

    def model_dump(self, *, mode: str = "python") -> dict[str, Any]:
        return {"mode": mode}

    def __iter__(self) -> Any:
        return iter(())


class Thing:
    pass


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (Model(), 'Model has no form in MessagePack: give its model_dump(mode="json")'),
        (deque([1]), "give its items, list(…)"),
        (range(3), "give its items, list(…)"),
        (Path("x"), "give its text, str(path)"),
        (Thing(), "give a dict, list, str, bytes, number, bool or None"),
    ],
)
def test_a_value_without_a_form_in_messagepack_is_refused_with_a_hint(
    given: Any, hint: str
) -> None:
    with pytest.raises(InvalidPayload) as caught:
        encode_payload({"a": [given]})
    assert hint in str(caught.value)


def test_numbers_of_numpy_are_refused_with_a_hint() -> None:
    numpy = pytest.importorskip("numpy")
    for given in (numpy.int64(1), numpy.zeros(2)):
        with pytest.raises(InvalidPayload, match=r"give its tolist\(\)"):
            encode_payload(given)
