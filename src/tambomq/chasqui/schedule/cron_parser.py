"""The parser of cron expressions: yields the seconds, hours and days that one names.

No time zone and no search. The dialect is the engine's, described in docs/protocols/chasqui.md.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tambomq.errors import InvalidFormat

MAX_LENGTH = 1000
"""Maximum length of an expression: far below the number of digits that int() refuses."""

EVERY, LAST = 0, 6
"""Which ones of a weekday in a month: all, or the last; 1 to 5 are the first to the fifth."""

_SUNDAY, _SATURDAY, _CLOSING_SUNDAY = 0, 6, 7
_NICKNAMES = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MIN_FIELDS, _MAX_FIELDS = 5, 7


class Days(msgspec.Struct, frozen=True):
    """The days of a month that an expression names."""

    dom: frozenset[int]
    near: frozenset[int]
    """Days that are moved to the nearest working day (``15W``)."""
    last: bool
    """Whether the month's last day is named."""
    dow: frozenset[tuple[int, int]]
    """Pairs of weekday (0 is Sunday) and its number in the month, `EVERY` or `LAST`."""
    any_dom: bool
    any_dow: bool
    both: bool
    """Whether a day must match both `dom` and `dow`; otherwise one of them is enough."""

    def in_month(self, length: int, first: int) -> tuple[int, ...]:
        """Return the days named in a month of *length* days that begins with weekday *first*."""
        if self.any_dow:
            days = self._by_dom(length, first)
        elif self.any_dom:
            days = self._by_dow(length, first)
        elif self.both:
            days = self._by_dom(length, first) & self._by_dow(length, first)
        else:
            days = self._by_dom(length, first) | self._by_dow(length, first)
        return tuple(sorted(days))

    def _by_dom(self, length: int, first: int) -> set[int]:
        days = {day for day in self.dom if day <= length}
        days |= {_nearest(day, length, first) for day in self.near if day <= length}
        return days | {length} if self.last else days

    def _by_dow(self, length: int, first: int) -> set[int]:
        return {
            day
            for day in range(1, length + 1)
            for which in (EVERY, (day + 6) // 7, LAST if day + 7 > length else EVERY)
            if (_weekday(day, first), which) in self.dow
        }


class Schedule(msgspec.Struct, frozen=True):
    """The values that an expression names, each field in ascending order."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: Days
    months: tuple[int, ...]
    years: tuple[int, ...]


class _Field:
    """A field of an expression with its range; invalid text raises `ValueError`."""

    def __init__(self, name: str, minimum: int, maximum: int, names: tuple[str, ...] = ()) -> None:
        self._name, self._minimum, self._maximum = name, minimum, maximum
        self._all = tuple(range(minimum, maximum + 1))
        self._names = {text: value for value, text in enumerate(names, minimum)}

    def values(self, text: str) -> tuple[int, ...]:
        """Return the numbers that a list names, in order."""
        if text == "*":
            return self._all
        return tuple(sorted({value for item in text.split(",") for value in self.item(item)}))

    def item(self, text: str) -> range:
        """Return the numbers that one item of a list names."""
        span, slash, step = text.partition("/")
        start, dash, end = span.partition("-")
        if span == "*":
            first, last = self._minimum, self._maximum
        elif dash:
            first, last = self.number(start), self.number(end)
            # A week may end with its Sunday: FRI-SUN.
            last = _CLOSING_SUNDAY if end == "SUN" else last
        else:
            first = self.number(start)
            last = self._maximum if slash else first
        if first > last:
            raise ValueError(f"{self._name}: {span} runs backwards; write two ranges")
        return range(first, last + 1, self._step(step) if slash else 1)

    def number(self, text: str) -> int:
        """Return the value of digits or of a name."""
        if (named := self._names.get(text)) is not None:
            return named
        if not text:
            raise ValueError(f"{self._name}: a value is missing")
        value = self._digits(text)
        if not self._minimum <= value <= self._maximum:
            raise ValueError(
                f"{self._name}: {text} is not between {self._minimum} and {self._maximum}"
            )
        return value

    def _step(self, text: str) -> int:
        if not text or (step := self._digits(text)) == 0:
            raise ValueError(f"{self._name}: a step is a number from 1, not {text!r}")
        return step

    def _digits(self, text: str) -> int:
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"{self._name}: {text!r} is no value here")
        return int(text)


_SECOND = _Field("second", 0, 59)
_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DOM = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, _MONTHS)
_DOW = _Field("day of week", 0, _CLOSING_SUNDAY, _WEEKDAYS)
# The engine has the same limit.
LAST_YEAR = 5000
_YEAR = _Field("year", 1970, LAST_YEAR)


@lru_cache(maxsize=1024)
def parse(expression: str) -> Schedule:
    """Parse *expression*; raise `InvalidFormat`, which names the wrong field."""
    if len(expression) > MAX_LENGTH:
        shown = f"{expression[:20]}…"
        raise InvalidFormat("cron expression", shown, f"at most {MAX_LENGTH} characters")
    try:
        second, minute, hour, dom, month, dow, year = _split(expression)
        return Schedule(
            _SECOND.values(second),
            _MINUTE.values(minute),
            _HOUR.values(hour),
            _days(dom, dow),
            _MONTH.values(month),
            _YEAR.values(year),
        )
    except ValueError as error:
        raise InvalidFormat("cron expression", expression, str(error)) from None


def _split(expression: str) -> list[str]:
    text = expression.strip().upper()
    fields = _NICKNAMES.get(text, text).replace("?", "*").split()
    if not _MIN_FIELDS <= len(fields) <= _MAX_FIELDS:
        nicknames = ", ".join(_NICKNAMES).lower()
        raise ValueError(f"5 to 7 fields, not {len(fields)}, or one of {nicknames}")
    if len(fields) == _MIN_FIELDS:
        fields.insert(0, "0")
    if len(fields) < _MAX_FIELDS:
        fields.append("*")
    return fields


def _days(dom: str, dow: str) -> Days:
    both, dow = dow.startswith("+"), dow.removeprefix("+")
    days: set[int] = set()
    near: set[int] = set()
    items = dom.split(",")
    for item in items:
        if item.endswith("W"):
            near.add(_DOM.number(item[:-1]))
        elif item != "L":
            days.update(_DOM.item(item))
    weekdays = {named for item in dow.split(",") for named in _weekdays(item)}
    return Days(
        frozenset(days),
        frozenset(near),
        "L" in items,
        frozenset(weekdays),
        any_dom=dom == "*",
        any_dow=dow == "*",
        both=both,
    )


def _weekdays(item: str) -> set[tuple[int, int]]:
    days, hash_sign, nth = item.partition("#")
    if not hash_sign and item.endswith("L"):
        days, nth = item[:-1], "L"
    elif hash_sign and nth not in ("1", "2", "3", "4", "5", "L"):
        raise ValueError(f"day of week: after # comes 1 to 5 or L, not {nth!r}")
    which = LAST if nth == "L" else int(nth or EVERY)
    return {(day % 7, which) for day in _DOW.item(days)}


def _weekday(day: int, first: int) -> int:
    return (first + day - 1) % 7


def _nearest(day: int, length: int, first: int) -> int:
    """Return the nearest day from Monday to Friday in the same month."""
    weekday = _weekday(day, first)
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day
