"""Value types of repeatable jobs."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.chasqui import MissedFiresPolicy, RepeatPattern
from tambomq.chasqui.job import U32
from tambomq.chasqui.repeat import missed_fires, repeat_pattern, spec_key
from tambomq.errors import InvalidFormat, InvalidValue
from tests.chasqui.vectors import Vector, vectors


def test_a_dict_is_the_pattern_of_its_fields() -> None:
    assert repeat_pattern({"kind": "every", "interval_ms": 5}) == RepeatPattern.every(5)
    cron = {"kind": "cron", "expression": "0 2 * * *", "tz": "Europe/Rome"}
    assert repeat_pattern(cron) == RepeatPattern.cron("0 2 * * *", tz="Europe/Rome")


@pytest.mark.parametrize(
    "pattern",
    [RepeatPattern.every(5), RepeatPattern.cron("@daily"), RepeatPattern.cron("x", tz="")],
)
def test_the_dict_of_a_pattern_gives_the_same_pattern(pattern: RepeatPattern) -> None:
    assert repeat_pattern(pattern.to_dict()) == repeat_pattern(pattern) == pattern
    assert None not in pattern.to_dict().values()


@pytest.mark.parametrize(
    "repeat",
    [
        {"kind": "hourly"},
        {"kind": "Every", "interval_ms": 5},
        {"kind": None},
        {"kind": "every", "ms": 5},
        {"interval_ms": 5},
        {},
        {"kind": "cron"},
        {"kind": "cron", "expression": 5},
        "0 2 * * *",
        5000,
        None,
        True,
    ],
)
def test_an_invalid_pattern_is_refused(repeat: Any) -> None:
    with pytest.raises(InvalidFormat):
        repeat_pattern(repeat)


@pytest.mark.parametrize("interval_ms", [0, None, -1, 1.5, "5", True, 2**64])
def test_an_interval_is_at_least_a_millisecond(interval_ms: Any) -> None:
    with pytest.raises(InvalidValue, match="interval_ms"):
        repeat_pattern(RepeatPattern.every(interval_ms))


def test_policies_are_made_by_name_or_by_dict() -> None:
    assert missed_fires({"kind": "skip"}) == MissedFiresPolicy.skip()
    assert missed_fires({"kind": "fire-once"}) == MissedFiresPolicy.fire_once()
    given = {"kind": "fire-all", "max_catchup": 3}
    assert missed_fires(given) == MissedFiresPolicy.fire_all(3)
    assert MissedFiresPolicy.fire_all(3).to_dict() == given


@pytest.mark.parametrize("max_catchup", [0, -1, U32 + 1, 1.5, True, "3", None])
def test_catching_up_is_at_least_once(max_catchup: Any) -> None:
    with pytest.raises(InvalidValue, match="max_catchup"):
        MissedFiresPolicy.fire_all(max_catchup)
    with pytest.raises(InvalidValue, match="max_catchup"):
        missed_fires({"kind": "fire-all", "max_catchup": max_catchup})


@pytest.mark.parametrize(
    "policy", [{"kind": "fire_once"}, {"kind": "x"}, {}, "skip", None, {"a": 1}]
)
def test_an_invalid_policy_is_refused(policy: Any) -> None:
    with pytest.raises(InvalidFormat):
        missed_fires(policy)


@pytest.mark.parametrize("vector", vectors("repeat_spec/"))
def test_a_spec_has_the_key_that_the_engine_gives_it(vector: Vector) -> None:
    spec = vector.inputs["spec"]
    key = spec_key(spec["key"], spec["job_name"], repeat_pattern(spec["pattern"]))
    assert key == vector.recorded["resolved_key"]


@pytest.mark.parametrize(
    ("tz", "tail"),
    [(None, "UTC"), ("UTC", "UTC"), ("utc", "utc"), ("", ""), (" +01:00 ", " +01:00 ")],
)
def test_a_zone_is_in_the_key_as_it_was_given(tz: str | None, tail: str) -> None:
    assert RepeatPattern.cron("* * * * *", tz=tz).signature == f"cron:* * * * *:{tail}"
