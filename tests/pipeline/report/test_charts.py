"""Charts that are well-formed, whatever they show."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tambomq.pipeline.report.charts import HALF, Series, bars, ceiling, lines, moment, short


def parsed(chart: str) -> ET.Element:
    return ET.fromstring(chart)  # noqa: S314  (our own)


NUMBERS = st.one_of(st.none(), st.floats(0, 1e12, allow_nan=False))


@given(st.floats(1e-3, 1e12))
def test_a_ceiling_is_above_and_near(value: float) -> None:
    assert value <= ceiling(value) * (1 + 1e-9)
    assert ceiling(value) <= 2.5 * value * (1 + 1e-9)


def test_the_ceiling_of_nothing_is_one() -> None:
    assert ceiling(0) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (950, "950"), (1200, "1.2k"), (34_000_000, "34M"), (2e9, "2G"), (2.5, "2.5")],
)
def test_numbers_are_short(value: float, expected: str) -> None:
    assert short(value) == expected


@example([5e-324], 60)  # a power of ten that is 0
@given(st.lists(NUMBERS, max_size=50), st.sampled_from([60, 3600, 86_400]))
def test_any_values_make_a_chart(values: list[float | None], step_s: int) -> None:
    at = [1_700_000_000_000 + place * step_s * 1000 for place in range(len(values))]
    chart = lines("c", at, [Series("a", "done", values, filled=True)], step_s=step_s, width=HALF)
    root = parsed(chart)
    shown = {
        point for each in root.iter("polyline") for point in (each.get("points") or "").split()
    }
    assert len(shown) == len([value for value in values if value is not None])
    for point in shown:
        x, y = map(float, point.split(","))
        assert 0 <= x <= HALF
        assert 0 <= y <= 230


def test_a_value_that_is_missing_makes_a_gap() -> None:
    chart = lines("c", [0, 1, 2, 3], [Series("a", "p50", [1, 2, None, 4])], step_s=60)
    root = parsed(chart)
    assert [len((each.get("points") or "").split()) for each in root.iter("polyline")] == [2, 1]


def test_time_labels_are_at_round_times() -> None:
    at = [1_700_000_040_000 + place * 60_000 for place in range(100)]
    chart = lines("c", at, [Series("a", "done", [1.0] * 100)], step_s=60)
    times = [each.text or "" for each in parsed(chart).iter("text")]
    assert [text[-1] for text in times if ":" in text] == ["0"] * 10


def test_days_are_shown_where_they_matter() -> None:
    assert moment(1_700_000_000_000, day=True) == "14 Nov"
    assert moment(1_700_000_000_000, day=False) == "22:13"


def test_bars_escape_what_they_name() -> None:
    shown = parsed(bars([("<b>&", 3, "3"), ("b", 0, "0")], "dead"))
    assert [each.get("title") for each in shown.iter("span") if each.get("title")] == ["<b>&", "b"]
