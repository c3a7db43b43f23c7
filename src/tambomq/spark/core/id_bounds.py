"""Bounds on stream entry ids, derived from filters. Never narrower than the filters allow."""

from __future__ import annotations

import re
from typing import Any, Final

from tambomq.spark.core.stream_cuts import LAST, number, start_of, text
from tambomq.spark.core.table import ColumnBounds

_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)


def id_bounds(
    bounds: ColumnBounds, id: str, time: str, first: str | None, last: str
) -> tuple[int, int] | None:
    """Return the lowest and the highest id that can match; `None` if no row can.

    *id* and *time* name the columns with the entry id and its time; *first* and *last* are the
    stream's first and last id, if known.
    """
    low, high = 0, LAST
    if time in bounds.lowest:
        low = max(low, start_of(bounds.lowest[time]))
    if time in bounds.highest:
        high = min(high, start_of(bounds.highest[time] + 1) - 1)
    if id in bounds.only:
        found = [number(each) for each in bounds.only[id] if _is_id(each)]
        if not found:
            return None
        low, high = max(low, min(found)), min(high, max(found))
    elif (digits := _digits(first, last)) is not None:
        low = max(low, start_of(_prefix(bounds.lowest.get(id), digits, 0)))
        max_ms = LAST // start_of(1)
        high = min(high, start_of(_prefix(bounds.highest.get(id), digits, max_ms) + 1) - 1)
    return (low, high) if low <= high else None


def _is_id(value: Any) -> bool:
    """Whether *value* is an entry id in its canonical spelling."""
    fits = isinstance(value, str) and _ID.fullmatch(value) is not None
    return fits and number(value) <= LAST and text(number(value)) == value


def _digits(first: str | None, last: str) -> int | None:
    """Return how many digits the milliseconds of all ids have; `None` if they differ.

    Spark compares ids as text. That agrees with the order of their times only if all have the same
    length, and never with the order of their sequence numbers.
    """
    lengths = {len(id.partition("-")[0]) for id in (first or "", last)}
    return lengths.pop() if len(lengths) == 1 else None


def _prefix(value: Any, digits: int, default: int) -> int:
    head = value[:digits] if isinstance(value, str) else ""
    return int(head) if len(head) == digits and head.isascii() and head.isdigit() else default
