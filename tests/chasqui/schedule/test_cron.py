from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tambomq.chasqui.repeat import RepeatPattern
from tambomq.chasqui.schedule import cron
from tambomq.chasqui.schedule.cron import check_pattern, next_fire_ms
from tambomq.errors import InvalidFormat, InvalidValue
from tests.chasqui.vectors import rows, table

# The engine fires a second time at 02:00, when the clocks have just gone forward. We do not.
WART = ("0 0 * * *", "Europe/London")
SEARCH_ENDED = "search limit exceeded"

ZONES = ["UTC", "+05:45", "Europe/London", "America/New_York", "Australia/Lord_Howe"]
# 1999 to 2048.
times = st.integers(10**12 - 10**11, 25 * 10**11)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def fires(expression: str, after: str, count: int, tz: str | None = None) -> list[str]:
    """The fires after a moment, both in UTC, as text."""
    at: int | None = ms(after)
    found = []
    for _ in range(count):
        assert at is not None
        at = next_fire_ms(RepeatPattern.cron(expression, tz=tz), at)
        found.append("never" if at is None else f"{datetime.fromtimestamp(at / 1000, UTC):%F %T}")
    return found


def days(expression: str, after: str, count: int) -> list[str]:
    return [fire[:10] for fire in fires(f"0 0 {expression}", after, count)]


@pytest.mark.parametrize("row", rows("cron_next_fire", "expression"))
def test_fires_match_those_of_the_engine(row: dict[str, Any]) -> None:
    pattern = RepeatPattern.cron(row["expression"], tz=row["tz"])
    expected = row["next_ms"]
    if (row["expression"], row["tz"]) == WART:
        expected = [expected[0], expected[2]]
    at = row["from_ms"]
    for fire in expected:
        if isinstance(fire, int):
            # The engine drags the milliseconds of its start along.
            assert next_fire_ms(pattern, at) == fire - fire % 1000
            at = fire
        elif SEARCH_ENDED in fire["error"]:
            assert next_fire_ms(pattern, at) is None
        else:
            for refused in (lambda: next_fire_ms(pattern, 0), lambda: check_pattern(pattern)):
                with pytest.raises(InvalidFormat):
                    refused()


def test_the_engine_table_has_the_fault_that_we_do_not_copy() -> None:
    assert WART in [(row["expression"], row["tz"]) for row in table("cron_next_fire")]


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("* * 5L", "2027-01-01", ["2027-01-29", "2027-02-26"]),
        ("* * FRI#L", "2027-01-01", ["2027-01-29", "2027-02-26"]),
        ("* * 7L", "2027-01-01", ["2027-01-31", "2027-02-28"]),
        ("* * mon#5", "2027-01-01", ["2027-03-29", "2027-05-31"]),
        ("* * MON-TUE#2", "2027-01-01", ["2027-01-11", "2027-01-12", "2027-02-08"]),
        ("* * 1#1,5L", "2027-01-01", ["2027-01-04", "2027-01-29", "2027-02-01"]),
        ("* * Fri-Sun", "2027-01-04", ["2027-01-08", "2027-01-09", "2027-01-10", "2027-01-15"]),
        ("* * SUN-MON", "2027-01-04", ["2027-01-10", "2027-01-11", "2027-01-17"]),
        ("* * 5/2", "2027-01-04", ["2027-01-08", "2027-01-10", "2027-01-15"]),
        ("1W * *", "2027-04-15", ["2027-05-03", "2027-06-01"]),
        ("31W * *", "2027-01-15", ["2027-01-29", "2027-03-31", "2027-05-31"]),
        ("31W 7,10 *", "2027-01-15", ["2027-07-30", "2027-10-29"]),
        ("1,L * ?", "2027-02-10", ["2027-02-28", "2027-03-01", "2027-03-31"]),
        ("? feb,Mar MON", "2027-01-01", ["2027-02-01", "2027-02-08"]),
        ("31 * +MON", "2027-01-01", ["2027-05-31", "2028-01-31"]),
        ("1-7/3 * *", "2027-01-02", ["2027-01-04", "2027-01-07", "2027-02-01"]),
        ("29 2 +1", "2027-01-01", ["2044-02-29"]),
    ],
)
def test_the_dialect_names_days_in_many_ways(
    expression: str, after: str, expected: list[str]
) -> None:
    assert days(expression, after, len(expected)) == expected


def test_six_fields_begin_with_seconds_and_seven_end_with_years() -> None:
    assert fires("5,50 59 23 31 12 *", "2027-01-01", 3) == [
        "2027-12-31 23:59:05",
        "2027-12-31 23:59:50",
        "2028-12-31 23:59:05",
    ]
    assert fires("0 0 0 1 1 * 2030-2040/5", "2027-01-01", 4) == [
        "2030-01-01 00:00:00",
        "2035-01-01 00:00:00",
        "2040-01-01 00:00:00",
        "never",
    ]


def test_nicknames_stand_for_expressions() -> None:
    assert fires(" @Daily ", "2027-01-01", 1) == ["2027-01-02 00:00:00"]
    assert fires("@monthly", "2027-01-01", 1) == ["2027-02-01 00:00:00"]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "5 to 7 fields, not 0"),
        ("* * * *", "5 to 7 fields, not 4"),
        ("@reboot", "5 to 7 fields, not 1"),
        ("61 * * * * *", "second: 61 is not between 0 and 59"),
        ("* 24 * * *", "hour: 24 is not between 0 and 23"),
        ("* * 32 * *", "day of month: 32"),
        ("* * * 13 *", "month: 13"),
        ("* * * * 8", "day of week: 8"),
        ("* * * * * * 1969", "year: 1969"),
        ("*/0 * * * *", "minute: a step is a number from 1, not '0'"),
        ("*/ * * * *", "minute: a step is a number from 1, not ''"),
        ("/5 * * * *", "minute: a value is missing"),
        ("1,,2 * * * *", "minute: a value is missing"),
        ("5- * * * *", "minute: a value is missing"),
        ("MON * * * *", "minute: 'MON' is no value here"),
        ("* * * NOV-FEB *", "month: NOV-FEB runs backwards"),
        ("* * * * L", "day of week: a value is missing"),
        ("* * * * 5#6", "day of week: after # comes 1 to 5 or L, not '6'"),
        ("* * * * 5#", "day of week: after # comes"),
        ("* * 5#2 * *", "day of month: '5#2' is no value here"),
        ("* * W * *", "day of month: a value is missing"),
        ("* * +1 * *", "day of month: '+1' is no value here"),
        ("٣ * * * *", "minute: '٣' is no value here"),
        (f"{'9' * 900} * * * *", "minute: "),
        ("*," * 5000, "at most 1000 characters"),
        ("0 0 30 2 *", "there is no such date"),
        ("0 0 31 2,4,6,9,11 *", "there is no such date"),
        ("0 0 0 29 2 * 2027", "there is no such date"),
    ],
)
def test_the_error_of_a_bad_expression_names_the_field_and_the_reason(
    expression: str, problem: str
) -> None:
    with pytest.raises(InvalidFormat) as caught:
        check_pattern(RepeatPattern.cron(expression))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pattern_that_never_fires_again_has_no_next_fire() -> None:
    assert next_fire_ms(RepeatPattern.cron("0 0 30 2 *"), 0) is None
    past = check_pattern(RepeatPattern.cron("0 0 0 1 1 * 2020"))
    assert next_fire_ms(past, ms("2027-01-01")) is None
    assert next_fire_ms(RepeatPattern.cron("* * * * *"), 10**30) is None


def test_an_interval_is_counted_from_the_later_of_both_times() -> None:
    pattern = check_pattern(RepeatPattern.every(250))
    assert next_fire_ms(pattern, 1000) == 1250
    assert next_fire_ms(pattern, 1000, 5000) == 5250
    assert next_fire_ms(pattern, 5000, 1000) == 5250
    assert next_fire_ms(pattern, -7) == 250


def test_cron_waits_for_its_start_too() -> None:
    pattern = RepeatPattern.cron("0 0 * * *")
    assert next_fire_ms(pattern, ms("2027-01-01"), ms("2027-03-01")) == ms("2027-03-02")


@pytest.mark.parametrize(
    "pattern",
    [
        RepeatPattern("lunar"),
        RepeatPattern("cron"),
        RepeatPattern.every(0),
        RepeatPattern("every"),
    ],
)
def test_an_invalid_pattern_is_refused(pattern: RepeatPattern) -> None:
    for refused in (lambda: next_fire_ms(pattern, 0), lambda: check_pattern(pattern)):
        with pytest.raises((InvalidFormat, InvalidValue)):
            refused()


@pytest.mark.parametrize(
    ("tz", "hour_utc"),
    [
        (None, 12),
        ("", 12),
        (" uTc ", 12),
        ("Z", 12),
        ("+02:00", 10),
        ("-0330", 15),
        (" Europe/Paris ", 11),
        ("Asia/Tokyo", 3),
    ],
)
def test_a_timezone_is_utc_or_an_offset_or_a_name(tz: str | None, hour_utc: int) -> None:
    check_pattern(RepeatPattern.cron("0 12 * * *", tz=tz))
    (fire,) = fires("0 12 * * *", "2027-01-01", 1, tz)
    assert int(fire[11:13]) == hour_utc


@pytest.mark.parametrize(
    "tz",
    [
        "europe/paris",
        "Mars/Olympus",
        "+2",
        "+24:00",
        "+02:60",
        "z",
        "../UTC",
        "/etc",
        "America",
        "\0",
    ],
)
def test_other_timezones_are_unsupported(tz: str) -> None:
    with pytest.raises(InvalidFormat, match="unsupported timezone"):
        check_pattern(RepeatPattern.cron("0 12 * * *", tz=tz))


def test_a_timezone_that_is_not_text_is_refused() -> None:
    with pytest.raises(InvalidFormat, match="unsupported timezone"):
        check_pattern(RepeatPattern.cron("0 12 * * *", tz=["UTC"]))  # type: ignore[arg-type]


def test_the_error_of_a_machine_without_timezones_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cron, "_zone_names", frozenset)
    with pytest.raises(InvalidFormat, match="package tzdata"):
        check_pattern(RepeatPattern.cron("0 12 * * *", tz="Europe/Tallinn"))
    check_pattern(RepeatPattern.cron("0 12 * * *", tz="+02:00"))


def test_a_day_that_was_left_out_fires_when_it_would_have_ended() -> None:
    # Samoa crossed the date line and had no 30 December 2011.
    expected = ["2011-12-29 22:00:00", "2011-12-30 10:00:00", "2011-12-30 22:00:00"]
    assert fires("0 12 * * *", "2011-12-29 00:00", 3, "Pacific/Apia") == expected


def test_nothing_fires_in_the_repeated_hour() -> None:
    # New York, between 01:00 EST and 02:00 EST.
    for after in ("2027-11-07 06:00:00", "2027-11-07 06:59:59"):
        assert fires("* * * * * *", after, 1, "America/New_York") == ["2027-11-07 07:00:00"]


@given(
    st.tuples(
        st.sets(st.integers(0, 59), min_size=1, max_size=5),
        st.sets(st.integers(0, 23), min_size=1, max_size=5),
        st.none() | st.sets(st.integers(1, 28), min_size=1, max_size=5),
        st.sets(st.integers(1, 12), min_size=1, max_size=5),
        st.none() | st.sets(st.integers(0, 6), min_size=1, max_size=3),
    ),
    st.sampled_from(ZONES),
    times,
)
def test_a_fire_is_later_and_matches_its_fields_on_the_wall(
    fields: tuple[set[int] | None, ...], tz: str, after_ms: int
) -> None:
    text = " ".join("*" if f is None else ",".join(map(str, f)) for f in fields)
    fire = next_fire_ms(RepeatPattern.cron(text, tz=tz), after_ms)
    assert fire is not None
    assert fire > after_ms
    assert fire % 1000 == 0
    local, before = wall(fire, tz), wall(fire - 1000, tz)
    minutes, hours, dom, months, dow = fields
    by_day = [] if dom is None else [local.day in dom]
    by_day += [] if dow is None else [local.isoweekday() % 7 in dow]
    matches = (
        local.minute in (minutes or ())
        and local.hour in (hours or ())
        and local.month in (months or ())
        and (any(by_day) or not by_day)
        and local.second == 0
    )
    # A time skipped by a clock change fires right after it, and matches no wall-clock time there.
    assert matches or local.utcoffset() != before.utcoffset()


@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 1 * MON", "*/20 5 * * * *", "0 0 L 2 *"]),
    st.sampled_from(ZONES),
    times,
    times,
)
def test_a_later_start_never_has_an_earlier_fire(
    expression: str, tz: str, one: int, other: int
) -> None:
    pattern = RepeatPattern.cron(expression, tz=tz)
    first, second = next_fire_ms(pattern, min(one, other)), next_fire_ms(pattern, max(one, other))
    assert first is not None
    assert second is not None
    assert first <= second
    assert first == second or first <= max(one, other)


@settings(max_examples=30)
@given(
    st.sampled_from([(30, 2), (0, 0), (15, 1), (0, 3), (59, 1)]),
    st.sampled_from(
        [
            ("Europe/London", "2027-03-28 01:00"),
            ("America/New_York", "2027-11-07 06:00"),
            ("Australia/Lord_Howe", "2027-04-03 15:00"),
            ("America/Havana", "2027-03-14 05:00"),
        ]
    ),
    st.integers(-1500, 1500),
)
def test_a_time_fires_when_the_clock_first_shows_it_or_has_jumped_over_it(
    time: tuple[int, int], change: tuple[str, str], minutes: int
) -> None:
    tz, turn = change
    minute, hour = time
    start = ms(turn) + minutes * 60_000
    shown = wall(start - 3 * 3_600_000, tz).replace(tzinfo=None)
    for at in range(start - 3 * 3_600_000, start + 49 * 3_600_000, 60_000):
        now = wall(at, tz).replace(tzinfo=None)
        aimed = now.replace(hour=hour, minute=minute)
        if at > start and shown < aimed <= now:
            break
        shown = max(shown, now)
    assert next_fire_ms(RepeatPattern.cron(f"{minute} {hour} * * *", tz=tz), start) == at


@given(st.text() | st.text("0123456789*/-,#?+LW @adeilmnrsuy ", max_size=30), st.none() | st.text())
def test_garbage_is_only_refused(expression: str, tz: str | None) -> None:
    pattern = RepeatPattern.cron(expression, tz=tz)
    for attempt in (lambda: next_fire_ms(pattern, 0), lambda: check_pattern(pattern)):
        with suppress(InvalidFormat):
            attempt()


def wall(at_ms: int, tz: str) -> datetime:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).astimezone(
        cron.zone(tz)
    )
