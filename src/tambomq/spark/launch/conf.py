"""What Spark is told unless somebody tells it otherwise, and how a running session is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tambomq.errors import SettingsError

_LATE: Final = "CANNOT_MODIFY"
ZONE: Final = "spark.sql.session.timeZone"

# What stands between :// and the last @ of a word, as tambomq.log masks it.
_MASKED: Final = r"(?<=://)[^\s:/@]*:\S*(?=@)"

# Without it, Spark refuses a source that takes filters.
NEEDED: Final = {"spark.sql.python.filterPushdown.enabled": "true"}

# Spark says these itself, on behalf of a shell, so what it says tells nothing of the user's wish.
NO_SHELL: Final = {"spark.ui.showConsoleProgress": "false"}

DEFAULTS: Final = {
    # A time is shown as it is in Redis, on every machine.
    ZONE: "UTC",
    # toPandas takes columns instead of row after row.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.log.level": "ERROR",
    # It would listen on every interface, and ask nobody for a password.
    "spark.ui.enabled": "false",
    # Spark's own words, then any value with a password in a URL.
    "spark.redaction.regex": rf"(?i)secret|password|passwd|token|access[.]?key|{_MASKED}",
    "spark.redaction.string.regex": _MASKED,
}

# Names of machines need not resolve, and nobody else has to reach a driver without a cluster.
HERE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def change(spark: SparkSession, wanted: Mapping[str, str]) -> None:
    """Tell a running session all of *wanted*.

    Raises `SettingsError` for what it is too late for, and for what can never be.
    """
    told, late = spark.conf.getAll, []
    for name, value in wanted.items():
        if told.get(name) == value:
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
    """Return what *error* says before it tells of Java."""
    return str(error).strip().partition("\n")[0]
