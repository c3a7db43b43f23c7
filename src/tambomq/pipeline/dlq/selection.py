"""Which dead letters Spark SQL chooses, and what it makes of their bodies.

Spark only looks: what is chosen is collected, in order, before anything is moved.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, Protocol

from tambomq.errors import SettingsError
from tambomq.pipeline import sql_guard

_SET: Final = re.compile(r"\s*(payload|body)\s*=(?!=)\s*(.+)", re.DOTALL | re.IGNORECASE)
_NEW: Final = "__new_body"
_STATE: Final = re.compile(r"\s*SQLSTATE:\s*\w+\s*")
_PLACE: Final = re.compile(r"line (\d+)(,? pos(?:ition)? )(\d+)")
_TEXTS: Final = ("string", "binary")


class Pick(NamedTuple):
    """A letter that is chosen, and its new body; `None` for the old."""

    key: str
    body: bytes | None = None


class Choosable(Protocol):
    """Letters that can be chosen from."""

    @property
    def key(self) -> str:
        """The column that names a letter."""

    @property
    def order(self) -> tuple[str, ...]:
        """What letters are ordered by, as SQL."""

    def frame(self, spark: Any) -> Any:
        """Return the letters as a DataFrame."""

    def bound(self, until: str) -> str:
        """Return, as SQL, which letters were there at *until*."""

    def packed(self, key: str, value: bytes | str) -> bytes:
        """Return a new body as it is stored; raise `SettingsError` for what can be none."""


def rewriting(text: str) -> str:
    """Return the expression of ``payload = <expression>``; raise `SettingsError`."""
    if (match := _SET.fullmatch(text)) is None:
        raise SettingsError(f"--set wants payload = <SQL expression>, not {text!r}")
    return match[2]


def chosen(spark: Any, letters: Choosable, where: str, rewrite: str, until: str) -> list[Pick]:
    """Return the letters that *where* is true of, the oldest first, with their new bodies.

    Raises `SettingsError` for SQL that is wrong or refused, and for a body that is none.
    """
    quieten()
    try:
        # Without parentheses Spark takes a word too many for a name of the result.
        condition, new = f"({where}\n)", f"({rewrite}) AS {_NEW}"
        # First of all: to analyse some functions is to run them.
        if where:
            sql_guard.check(spark, condition, "--where")
        if rewrite:
            sql_guard.check(spark, new, "--set")
        frame = letters.frame(spark)
        found = frame.where(condition) if where else frame
        found = found.where(letters.bound(until)).orderBy(*map(expression, letters.order))
        if not rewrite:
            return [Pick(row[0]) for row in found.select(letters.key).collect()]
        found = found.selectExpr(letters.key, new)
        _check_kind(found.schema[_NEW].dataType.typeName())
        return [_rewritten(letters, *row) for row in found.collect()]
    except Exception as error:
        if (fault := sql_fault(error)) is None:
            raise
        raise SettingsError(_PLACE.sub(_without_parenthesis, fault)) from error


def _without_parenthesis(match: re.Match[str]) -> str:
    """Return a place as it is in what somebody wrote."""
    line, between, column = match.groups()
    return f"line {line}{between}{max(0, int(column) - (line == '1'))}"


def sql_fault(error: Exception) -> str | None:
    """Return what Spark says of a mistake in SQL in one line, with its place; `None` for others."""
    if not hasattr(error, "getSqlState") or type(error).__name__ not in (
        *("ParseException", "AnalysisException", "ArithmeticException", "DateTimeException"),
        *("NumberFormatException", "IllegalArgumentException", "SparkRuntimeException"),
    ):
        return None
    # The lines below the first show the query, or the plan it would have been.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = _STATE.sub(" ", lines[0]) if lines else type(error).__name__
    place = next((line for line in lines[1:] if line.startswith("== SQL (")), "")
    told = " ".join(f"{told} {place.strip('= ')}".split()).replace(" ;", ";").rstrip(";: ")
    return f"SQL: {told}"


def quieten() -> None:
    """Keep PySpark from printing each mistake in SQL as a page of JSON as well."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  (only where Spark is)

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def expression(text: str) -> Any:
    """Return SQL as a column."""
    from pyspark.sql.functions import expr  # noqa: PLC0415  (only where Spark is)

    return expr(text)


def _check_kind(kind: str) -> None:
    if kind not in _TEXTS:
        raise SettingsError(f"--set: the new body must be text or bytes, not {kind}")


def _rewritten(letters: Choosable, key: str, value: Any) -> Pick:
    if value is None:
        raise SettingsError(f"--set: the new body of {key} is null; nothing was moved")
    return Pick(key, letters.packed(key, bytes(value) if isinstance(value, bytearray) else value))
