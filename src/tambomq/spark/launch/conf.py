"""Default settings of Spark sessions, and changes to a running session's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tambomq.errors import SettingsError

_LATE: Final = "CANNOT_MODIFY"
ZONE: Final = "spark.sql.session.timeZone"

# User and password in a URL, which tambomq.log masks in the same way.
_MASKED: Final = r"(?<=://)[^\s:/@]*:\S*(?=@)"

# Without it, Spark refuses data sources that accept filters.
NEEDED: Final = {"spark.sql.python.filterPushdown.enabled": "true"}

# Spark's shell sets these itself, so a value that is there need not be the user's choice.
NO_SHELL: Final = {"spark.ui.showConsoleProgress": "false"}

DEFAULTS: Final = {
    # Show times in UTC, the same on every machine.
    ZONE: "UTC",
    # Makes toPandas transfer columns instead of single rows.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.log.level": "ERROR",
    # The UI would listen on every interface without a password.
    "spark.ui.enabled": "false",
    # Spark's own pattern, and any value with a password in a URL.
    "spark.redaction.regex": rf"(?i)secret|password|passwd|token|access[.]?key|{_MASKED}",
    "spark.redaction.string.regex": _MASKED,
}

# The host name may not resolve, and a driver without a cluster needs no other address.
HERE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def change(spark: SparkSession, wanted: Mapping[str, str]) -> None:
    """Set all of *wanted* in a running session.

    Raises `SettingsError` for settings that can only be made at the start, and for invalid ones.
    """
    current, late = spark.conf.getAll, []
    for name, value in wanted.items():
        if current.get(name) == value:
            continue
        try:
            spark.conf.set(name, value)
        except PySparkException as error:
            if not (error.getCondition() or "").startswith(_LATE):
                raise SettingsError(f"{name}: {first_line(error)}") from error
            late.append(name)
    if late:
        # Their values may be secrets.
        raise SettingsError(
            f"a session runs already, where {', '.join(late)} cannot be changed: stop() it first"
        )


def first_line(error: Exception) -> str:
    """Return the first line of *error*, before the Java stack trace."""
    return str(error).strip().partition("\n")[0]
