"""Selects dead letters by Spark SQL, and computes new bodies for them.

Spark only reads: the selection is collected, in order, before anything is moved.
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


class Selection(NamedTuple):
    """A selected dead letter, and its new body; `None` keeps the old."""

    key: str
    body: bytes | None = None


class LetterTable(Protocol):
    """Dead letters that SQL can select from."""

    @property
    def key(self) -> str:
        """The column that identifies a dead letter."""

    @property
    def order(self) -> tuple[str, ...]:
        """The order of dead letters, as SQL."""

    def frame(self, spark: Any) -> Any:
        """Return the dead letters as a DataFrame."""

    def bound(self, until: str) -> str:
        """Return the SQL condition for dead letters that existed at *until*."""

    def packed(self, key: str, value: bytes | str) -> bytes:
        """Return a new body in the form in which it is stored; raise `SettingsError`."""


def rewriting(text: str) -> str:
    """Return the expression of ``payload = <expression>``; raise `SettingsError`."""
    if (match := _SET.fullmatch(text)) is None:
        raise SettingsError(f"--set wants payload = <SQL expression>, not {text!r}")
    return match[2]


def chosen(
    spark: Any, letters: LetterTable, predicate: str, rewrite: str, until: str
) -> list[Selection]:
    """Return the letters for which *where* is true, the oldest first, with their new bodies.

    Raises `SettingsError` for SQL that is wrong or refused, and for a new body that is not one.
    """
    quieten()
    try:
        # Without parentheses Spark would take a surplus word for an alias.
        condition, new = f"({predicate}\n)", f"({rewrite}) AS {_NEW}"
        # Before anything else: Spark runs some functions while it analyses them.
        if predicate:
            sql_guard.check(spark, condition, "--where")
        if rewrite:
            sql_guard.check(spark, new, "--set")
        frame = letters.frame(spark)
        found = frame.where(condition) if predicate else frame
        found = found.where(letters.bound(until)).orderBy(*map(expression, letters.order))
        if not rewrite:
            return [Selection(row[0]) for row in found.select(letters.key).collect()]
        found = found.selectExpr(letters.key, new)
        _check_kind(found.schema[_NEW].dataType.typeName())
        return [_rewritten(letters, *row) for row in found.collect()]
    except Exception as error:
        if (fault := sql_fault(error)) is None:
            raise
        raise SettingsError(_PLACE.sub(_without_parenthesis, fault)) from error


def _without_parenthesis(match: re.Match[str]) -> str:
    """Return a position in the user's text: ours begins with a parenthesis."""
    line, between, column = match.groups()
    return f"line {line}{between}{max(0, int(column) - (line == '1'))}"


def sql_fault(error: Exception) -> str | None:
    """Return Spark's message about wrong SQL in one line, with the position; `None` for others."""
    if not hasattr(error, "getSqlState") or type(error).__name__ not in (
        *("ParseException", "AnalysisException", "ArithmeticException", "DateTimeException"),
        *("NumberFormatException", "IllegalArgumentException", "SparkRuntimeException"),
    ):
        return None
    # The lines below the first show the query, or the plan it would have been.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = _STATE.sub(" ", lines[0]) if lines else type(error).__name__
    place = next((line for line in lines[1:] if line.startswith("== SQL (")), "")
    message = " ".join(f"{message} {place.strip('= ')}".split()).replace(" ;", ";").rstrip(";: ")
    return f"SQL: {message}"


def quieten() -> None:
    """Keep PySpark from logging each SQL error as a page of JSON as well."""
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


def _rewritten(letters: LetterTable, key: str, value: Any) -> Selection:
    if value is None:
        raise SettingsError(f"--set: the new body of {key} is null; nothing was moved")
    return Selection(
        key, letters.packed(key, bytes(value) if isinstance(value, bytearray) else value)
    )
