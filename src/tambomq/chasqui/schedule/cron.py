"""The next fire of a repeatable job, in a time zone.

Cron matches the wall clock of a time zone. When clocks go forward, a skipped time fires at the
first moment after the gap; when they go back, the repeated hour does not fire again. So a daily
job fires once a day.

The parser is our own, because no maintained Python library has the engine's dialect and these
rules.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from tambomq.chasqui.repeat import RepeatPattern, repeat_pattern
from tambomq.chasqui.schedule.cron_parser import LAST_YEAR, Days, Schedule, parse
from tambomq.errors import InvalidFormat

_SECOND = timedelta(seconds=1)
_START = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's, in whatever zone
_EPOCH = _START.replace(tzinfo=UTC)
_LAST_MS = (datetime(LAST_YEAR + 1, 1, 2, tzinfo=UTC) - _EPOCH) // _SECOND * 1000
_OFFSET = re.compile("([+-])([01][0-9]|2[0-3]):?([0-5][0-9])")


def next_fire_ms(
    pattern: RepeatPattern, after_ms: int, start_after_ms: int | None = None
) -> int | None:
    """Return the first fire later than both times, in epoch milliseconds; `None` if there is none.

    Raises `InvalidFormat` or `InvalidValue` for an invalid pattern.
    """
    base_ms = max(after_ms, start_after_ms or 0)
    if pattern.kind == "cron" and isinstance(pattern.expression, str):
        return _next_cron_ms(parse(pattern.expression), zone(pattern.tz), base_ms)
    return base_ms + (repeat_pattern(pattern).interval_ms or 0)


def check_pattern(pattern: RepeatPattern) -> RepeatPattern:
    """Return *pattern* if it can ever fire; raise `InvalidFormat` or `InvalidValue` if not."""
    repeat_pattern(pattern)
    if pattern.kind == "cron" and pattern.expression is not None:
        if not isinstance(pattern.tz, str | None):
            raise InvalidFormat(
                "timezone", pattern.tz, "unsupported timezone; text, or None for UTC"
            )
        zone(pattern.tz)
        if _first_from(parse(pattern.expression), _START) is None:
            raise InvalidFormat("cron expression", pattern.expression, "there is no such date")
    return pattern


@lru_cache(maxsize=256)
def zone(tz: str | None) -> tzinfo:
    """Return the time zone of a pattern's *tz*; raise `InvalidFormat` if it is unknown."""
    name = (tz or "").strip()
    if name.upper() in ("", "UTC") or name == "Z":
        return UTC
    if match := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    names = _zone_names()
    if name in names:
        return ZoneInfo(name)
    rule = "unsupported timezone; UTC, an offset such as +02:00, or a name such as Europe/Paris"
    if not names:
        rule = "unsupported timezone: this machine knows none; install the Python package tzdata"
    raise InvalidFormat("timezone", tz, rule)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    # ZoneInfo alone would look up files, and file systems may ignore upper and lower case.
    return frozenset(available_timezones())


def _next_cron_ms(schedule: Schedule, place: tzinfo, base_ms: int) -> int | None:
    if base_ms >= _LAST_MS:
        return None
    wall = _first_from(schedule, _wall_after(base_ms // 1000, place))
    return None if wall is None else _second_of(wall, place) * 1000


def _first_from(schedule: Schedule, wall: datetime) -> datetime | None:
    """Return the first time of a schedule at or after *wall*."""
    today = (wall.year, wall.month, wall.day)
    for date in _dates(schedule, today):
        start = (wall.hour, wall.minute, wall.second) if date == today else (0, 0, 0)
        if time := _time(schedule, *start):
            return datetime(*date, *time)  # noqa: DTZ001 - as _START
    return None


def _dates(schedule: Schedule, start: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    for year in schedule.years[bisect_left(schedule.years, start[0]) :]:
        for month in schedule.months:
            monday_based, length = monthrange(year, month)
            for day in _days(schedule.days, length, (monday_based + 1) % 7):
                if (year, month, day) >= start:
                    yield year, month, day


# A month's days depend only on its length and its first weekday, and the search for a date that
# never comes visits thousands of months.
@lru_cache(maxsize=4096)
def _days(days: Days, length: int, first: int) -> tuple[int, ...]:
    return days.in_month(length, first)


def _time(schedule: Schedule, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
    """Return the first time of day of a schedule at or after the given one."""
    seconds, minutes = schedule.seconds, schedule.minutes
    for h in schedule.hours[bisect_left(schedule.hours, hour) :]:
        if h > hour:
            return h, minutes[0], seconds[0]
        for m in minutes[bisect_left(minutes, minute) :]:
            if m > minute:
                return h, m, seconds[0]
            if second <= seconds[-1]:
                return h, m, seconds[bisect_left(seconds, second)]
    return None


def _wall_after(second: int, place: tzinfo) -> datetime:
    """Return the first wall-clock time that has not been shown by the end of epoch *second*."""
    local = _local(second, place)
    if not local.fold:
        return local.replace(tzinfo=None) + _SECOND
    # This hour is shown for the second time: go on from where the clock was set back.
    shown = _offset(local.replace(fold=0))
    turned = _change(second - (shown - _offset(local)) // _SECOND, second, place)
    return _START + timedelta(seconds=turned) + shown


def _second_of(wall: datetime, place: tzinfo) -> int:
    """Return the epoch second that first shows *wall*; in a gap, the first one after it."""
    local = wall.replace(tzinfo=place)
    second = (local - _EPOCH) // _SECOND
    if _local(second, place).replace(tzinfo=None) == wall:
        return second
    return _change((local.replace(fold=1) - _EPOCH) // _SECOND, second, place)


def _change(before: int, after: int, place: tzinfo) -> int:
    """Return the first second that has the UTC offset of *after*, which *before* has not."""
    offset = _offset(_local(after, place))
    return before + bisect_left(
        range(before, after), 1, key=lambda second: int(_offset(_local(second, place)) == offset)
    )


def _local(second: int, place: tzinfo) -> datetime:
    return (_EPOCH + timedelta(seconds=second)).astimezone(place)


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or timedelta()
