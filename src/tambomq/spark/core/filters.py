"""Column bounds derived from Spark's filters.

Spark still applies every filter itself: the bounds only save reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tambomq.spark.core.table import ColumnBounds

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def bounds_of(filters: Iterable[Filter]) -> ColumnBounds:
    """Return the bounds that all of *filters* imply together; times become milliseconds."""
    bounds = ColumnBounds()
    for each in filters:
        column = ".".join(getattr(each, "attribute", ()))
        if isinstance(each, EqualTo | EqualNullSafe):
            _narrow(bounds, column, (each.value,))
        elif isinstance(each, In):
            _narrow(bounds, column, each.value)
        elif isinstance(each, GreaterThan | GreaterThanOrEqual):
            _tighten(bounds.lowest, column, each.value, max)
        elif isinstance(each, LessThan | LessThanOrEqual):
            _tighten(bounds.highest, column, each.value, min)
    return bounds


def _narrow(bounds: ColumnBounds, column: str, values: Iterable[Any]) -> None:
    named = [value for value in values if value is not None]
    # NaN equals NaN in Spark but not in Python, and null equals nothing: derive no bounds.
    if not named or any(value != value for value in named):  # noqa: PLR0124  (so is NaN alone)
        return
    found = frozenset(_plain(value, last=False) for value in named)
    bounds.only[column] = bounds.only.get(column, found) & found
    _tighten(bounds.lowest, column, min(named), max)
    _tighten(bounds.highest, column, max(named), min)


def _tighten(limits: dict[str, Any], column: str, value: Any, choose: Any) -> None:
    if value is None or value != value:  # noqa: PLR0124  (as above)
        return
    plain = _plain(value, last=choose is min)
    limits[column] = choose(limits[column], plain) if column in limits else plain


def _plain(value: Any, *, last: bool) -> Any:
    if not isinstance(value, datetime):
        return value
    # Integer arithmetic: with floats, some milliseconds round to the one before.
    since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
    return -(-since // _MILLISECOND) if last else since // _MILLISECOND
