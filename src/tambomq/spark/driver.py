"""A Spark session that works where Spark was never set up."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tambomq.errors import SettingsError

try:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession
except ImportError as exc:
    raise SettingsError("Spark is not installed: `pip install 'tambomq[spark]'`") from exc

from tambomq.spark import archive, java
from tambomq.spark.shipping import is_local, ship

_MASTER: Final = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|\w+://.+")

# What stands between :// and the last @ of a word, as tambomq.log masks it.
_MASKED: Final = r"(?<=://)[^\s:/@]*:\S*(?=@)"

# Without it, Spark refuses a source that takes filters.
_NEEDED: Final = {"spark.sql.python.filterPushdown.enabled": "true"}

# Spark says these itself, on behalf of a shell, so what it says tells nothing of the user's wish.
_NO_SHELL: Final = {"spark.ui.showConsoleProgress": "false"}

_DEFAULTS: Final = {
    # A time is shown as it is in Redis, on every machine.
    "spark.sql.session.timeZone": "UTC",
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
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session(
    app: str = "tambomq", *, master: str | None = None, conf: Mapping[str, Any] | None = None
) -> SparkSession:
    """Return a session of Spark in which queues are tables; the running one, if there is one.

    *master* is where it runs: ``local[2]``, ``spark://host:7077``, ``yarn``, …; by default what
    Spark's own settings say, else all cores of this machine. What *conf* says wins over all that is
    chosen here. Workers of a cluster get the package sent. Raises `SettingsError` where no Java is.
    """
    if master is not None and not _MASTER.fullmatch(master):
        raise SettingsError(
            f"master must be local, local[2], spark://host:port, yarn or the like, not {master!r}"
        )
    asked = {name: _text(value) for name, value in (conf or {}).items()}
    if master is not None:
        asked["spark.master"] = master
    if SparkContext._active_spark_context is None:  # noqa: SLF001  (nothing else tells it without starting one)
        _start_java(asked)
        asked = {**_chosen(app, asked), **asked}
    spark = SparkSession.builder.config(map={**_NEEDED, **asked}).getOrCreate()
    if not is_local(str(spark.sparkContext.master)):
        ship(spark)
    return spark


def _start_java(asked: Mapping[str, str]) -> None:
    """Start the JVM, unless one runs or ``spark-submit`` has started it and us."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        # Else Spark takes the first python3 on PATH, which has none of what is installed here.
        os.environ.setdefault(name, sys.executable)
    conf = SparkConf(loadDefaults=False).setAll(list(asked.items()))
    with _environment(asked):
        SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001  (to ask it what is told elsewhere)


@contextmanager
def _environment(asked: Mapping[str, str]) -> Iterator[None]:
    """Have in the environment what the JVM needs at its start, and take it back."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None:  # noqa: SLF001  (as above)
        yield
        return
    found = java.find(os.environ)
    # Spark takes a word in quotes as it is, and what comes last wins.
    words = [f'"{word}"' for word in archive.options(found, os.environ)]
    words.append(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    wanted = {
        "JAVA_HOME": java.home_for(found, os.environ),
        "SPARK_SUBMIT_OPTS": " ".join(words).strip() or None,
    }
    if is_local(asked.get("spark.master", "")):
        # Else Spark looks for an address by the machine's name, and complains about it.
        wanted["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    before = {name: os.environ.get(name) for name in wanted}
    try:
        _set(wanted)
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _chosen(app: str, asked: Mapping[str, str]) -> dict[str, str]:
    """Return our defaults, without what Spark's files or ``spark-submit`` say otherwise."""
    told = {**dict(SparkConf().getAll()), **asked}
    defaults = {**_DEFAULTS, **(_LOCAL if is_local(told.get("spark.master", "local")) else {})}
    kept = {name: value for name, value in defaults.items() if name not in told}
    return {"spark.app.name": app, **_NO_SHELL, **kept}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
