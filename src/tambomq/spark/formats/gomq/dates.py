"""The publication time of GOMQ messages, whose timestamp is a date in some time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_DATE: Final = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2})  ?(\d{1,2}) (\d\d):(\d\d):(\d\d) (\S+) (\d{4})", re.ASCII
)
_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)?", re.ASCII)
_XID: Final = re.compile(r"[0-9a-v]{20}", re.ASCII)
_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_XID_BITS_BEHIND_ITS_SECOND: Final = 68
_FARTHEST_ZONE_S: Final = 14 * 3600


def published_ms(timestamp: str, id: str) -> int | None:
    """Return *timestamp* as milliseconds since 1970; `None` if it is ambiguous.

    Zone names such as ``CST`` are ambiguous. For those, the second is taken from the message's
    *id*, an xid, if it is within a zone's offset of the date.
    """
    found = _read(timestamp)
    if found is None:
        return None
    second, is_exact = found
    if is_exact:
        return second * 1000
    if not _XID.fullmatch(id):
        return None
    drawn = int(id, 32) >> _XID_BITS_BEHIND_ITS_SECOND
    return drawn * 1000 if abs(drawn - second) <= _FARTHEST_ZONE_S else None


@lru_cache(4096)  # many are published in one second
def _read(timestamp: str) -> tuple[int, bool] | None:
    """Return the second as if it were UTC, and whether it is."""
    match = _DATE.fullmatch(timestamp)
    if match is None or match[1] not in _MONTHS:
        return None
    day, hour, minute, second = (int(match[each]) for each in (2, 3, 4, 5))
    month, year, zone = _MONTHS.index(match[1]) + 1, int(match[7]), match[6]
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    at = int(moment.timestamp())
    if zone in ("UTC", "GMT", "Z"):
        return at, True
    if offset := _OFFSET.fullmatch(zone):
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return at - int(ahead.total_seconds()) * (1 if offset[1] == "+" else -1), True
    return at, False
