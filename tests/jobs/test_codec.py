"""Values as they are stored, and back; what does not fit is named by its path."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from tambomq.errors import InvalidFormat
from tambomq.jobs.codec import converter, explain, to_plain
from tests.jobs.shop import Item, Receipt, Tone


class User(BaseModel):
    name: str
    born: date
    friends: list[User] = []


ADA = User(name="Ada", born=date(1815, 12, 10), friends=[User(name="Bob", born=date(1816, 1, 1))])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (User, ADA),
        (dict[str, User | None], {"a": ADA, "b": None}),
        (Tone, Tone.WARM),
        (list[Receipt], [Receipt("x")]),
        (timedelta | None, timedelta(seconds=5)),
        (int | str, "x"),
        (Any, {"a": [1]}),
    ],
)
def test_a_value_comes_back_from_its_plain_form(kind: Any, value: Any) -> None:
    convert = converter(kind, "value")
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(to_plain(value)))
    assert convert(plain) == value
    assert convert(value) == value


@pytest.mark.parametrize(
    ("kind", "plain", "fault"),
    [
        (User, {"name": "Ada"}, "$.born: field required"),
        (
            dict[str, User],
            {"a": {"name": "Ada", "born": "1815-12-10", "friends": [{"name": 5}]}},
            "$['a'].friends[0].name: input should be a valid string",
        ),
        (
            dict[str, list[dict[str, int]]],
            {"a": [{"b": 1}], "c": [{}, {"d": 1, "e": "x", "f": "y"}]},
            "$['c'][1]['e']: expected int, got str",
        ),
        (dict[str, int], {"k" * 100: "x"}, f"$['{'k' * 59}…]: expected int, got str"),
        (dict[str, dict[int, int]], {"a": {"b": 1}}, "$['a']: a key: expected int, got str"),
        (list[Item], [{"sku": 5, "price": "1"}], "$[0].sku: expected uuid, got int"),
        (Tone, "hot", "$: invalid enum value 'hot'"),
        (Receipt, {}, "$.to: missing"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(kind: Any, plain: Any, fault: str) -> None:
    convert = converter(kind, "value")
    with pytest.raises(msgspec.ValidationError) as found:
        convert(plain)
    assert explain(found.value, plain, convert) == fault


@pytest.mark.parametrize("kind", [Item | Receipt, type, list[BaseException]])
def test_a_type_ambiguous_with_its_plain_form_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidFormat, match="value"):
        converter(kind, "value")
