"""One Spark for all tests that need one, gone when they are done."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_ENDS_WITHIN_S = 60
_LAST_S = 300
_TOO_LATE = "Python worker failed to connect back"
_BEGINS = "Initializing"
_TIMES = 20

JAVA = dict.fromkeys(
    ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"), "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
)
"""For each Java that a test starts: most end before the second compiler would have paid. Beside
other work a session with ten small queries took 29 s instead of 60."""

CONF = {
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.streaming.stopTimeout": "30s",
    # Tests have few rows and many plans: what only pays for many rows is left out.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
"""How the shared session differs from one that `tambomq.spark.session` makes by itself."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores; to start it takes seconds, once."""
    from tambomq.spark import session  # noqa: PLC0415  (most tests need no Spark)
    from tambomq.spark.launch import class_archive  # noqa: PLC0415  (as above)

    home = tmp_path_factory.mktemp("spark")
    conf = {**CONF, "spark.local.dir": home / "local", "spark.sql.warehouse.dir": home / "lakes"}
    with pytest.MonkeyPatch.context() as patch:
        # Workers import what tests send them; Spark hands on what its JVM was started with.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        # A new machine has no archive of classes yet: to make it takes longer than it saves here.
        made = class_archive.options
        patch.setattr(class_archive, "options", lambda *given: _unless_new(made(*given)))
        found = session("tests", master="local[2]", conf=conf)
    with _patient():
        yield found
    found.stop()
    _end_java()


def _unless_new(options: tuple[str, ...]) -> tuple[str, ...]:
    return () if any("ArchiveClassesAtExit" in each for each in options) else options


@contextmanager
def lent(spark: SparkSession) -> Iterator[SparkSession]:
    """Make `tambomq.spark.session` return the session that runs already.

    For programs that would start a JVM of their own and stop it. What they want of the JVM itself
    they do not get; settings and temporary views of theirs are gone when the block ends.
    """

    def session(app: str = "", *, master: str | None = None, conf: Any = None) -> SparkSession:
        del app, master
        for name, value in (conf or {}).items():
            if spark.conf.isModifiable(name):
                spark.conf.set(name, value)
        return spark

    before = dict(spark.conf.getAll)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tambomq.spark.session", session, raising=False)
        patch.setattr(spark, "stop", lambda: None)
        try:
            yield spark
        finally:
            _forget(spark, before)


def _forget(spark: SparkSession, before: dict[str, str]) -> None:
    """Restore the settings *before* of a session, and drop its temporary views."""
    for name, value in dict(spark.conf.getAll).items():
        if name not in before:
            spark.conf.unset(name)
        elif before[name] != value:
            spark.conf.set(name, before[name])
    for view in spark.sql("SHOW VIEWS").collect():
        if view.isTemporary:
            spark.catalog.dropTempView(view.viewName)


@contextmanager
def _patient() -> Iterator[None]:
    """Start a query again if this machine was too busy for it.

    Spark gives the Python process of a stream ten seconds to come up, and no more.
    """
    from pyspark.sql.streaming.readwriter import DataStreamWriter  # noqa: PLC0415  (as above)

    once = DataStreamWriter.start

    def start(self: DataStreamWriter, *args: Any, **options: Any) -> StreamingQuery:
        query = once(self, *args, **options)
        for _ in range(_TIMES):
            while query.isActive and query.status["message"].startswith(_BEGINS):
                time.sleep(0.01)
            if _TOO_LATE not in str(query.exception()):
                break
            query = once(self, *args, **options)
        return query

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataStreamWriter, "start", start)
        yield


def longer(items: list[pytest.Item], here: Path) -> None:
    """Give each test below *here* a longer time limit: any may be the one that starts Spark."""
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_LAST_S))


def _end_java() -> None:
    """End the JVM, which Spark leaves to the end of the process."""
    from pyspark import SparkContext  # noqa: PLC0415  (as above)

    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_ENDS_WITHIN_S)
    SparkContext._gateway = SparkContext._jvm = None
