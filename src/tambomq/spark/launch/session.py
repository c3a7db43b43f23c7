"""A Spark session that works where Spark was never set up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tambomq.errors import SettingsError
from tambomq.extras import how_to_install

try:
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
except ImportError as exc:
    raise SettingsError(f"Spark is not installed: {how_to_install('spark')}") from exc

from tambomq.spark import archive, confs, connect, java, masters, worker_python
from tambomq.spark.shipping import ship

_LEVEL: Final = "spark.log.level"

# It says that a job waits for workers that a cluster does not have.
_WAITING: Final = "org.apache.spark.scheduler.TaskSchedulerImpl"


def session(
    app: str = "tambomq", *, master: str | None = None, conf: Mapping[str, Any] | None = None
) -> SparkSession:
    """Return a session of Spark in which queues are tables; the running one, if there is one.

    *master* is where it runs: ``local[2]``, ``spark://host:7077``, ``yarn``, …, or ``sc://host``
    for Spark Connect; by default what Spark's own settings say, else all cores of this machine.
    What *conf* says wins over all that is chosen here. Workers of a cluster get the package sent.

    Raises `SettingsError` where no Java is found, where nobody listens at *master*, and for what a
    running session cannot change any more.
    """
    asked = {name: _text(value) for name, value in (conf or {}).items()}
    where = master if master is not None else _where(asked)
    if where is not None:
        masters.check(where)
    remote = connect.running()
    if masters.is_remote(where or "") or (where is None and remote is not None):
        return connect.connect(app, where, asked)
    if remote is not None:
        raise SettingsError("a session by Spark Connect runs already: stop() it first")
    if where is not None:
        asked["spark.master"] = where
    spark = _told(asked) if _is_running() else _started(app, asked)
    if not masters.is_local(str(spark.sparkContext.master)):
        ship(spark)
    return spark


def _where(asked: dict[str, str]) -> str | None:
    """Return what the settings or the environment say of the master, before Spark is started."""
    if (remote := asked.pop("spark.remote", None)) is not None:
        return remote
    if (master := asked.get("spark.master")) is not None:
        return master
    return None if _is_running() else os.environ.get("SPARK_REMOTE") or None


def _is_running() -> bool:
    return SparkContext._active_spark_context is not None  # noqa: SLF001  (nothing else tells it without starting one)


def _told(asked: dict[str, str]) -> SparkSession:
    spark = SparkSession.builder.getOrCreate()
    here = str(spark.sparkContext.master)
    if asked.pop("spark.master", here) != here:
        raise SettingsError(f"a session on {here} runs already: stop() it first")
    confs.change(spark, {**confs.NEEDED, **asked})
    return spark


def _started(app: str, asked: Mapping[str, str]) -> SparkSession:
    connect.leave()
    masters.reach(asked.get("spark.master", ""), os.environ)
    _start_java(asked)
    told = {**dict(SparkConf().getAll()), **asked}
    if "spark.master" not in asked:
        masters.reach(told.get("spark.master", ""), os.environ)
    wanted: dict[str, Any] = {**confs.NEEDED, **_chosen(app, told), **asked}
    try:
        spark = SparkSession.builder.config(map=wanted).getOrCreate()
    except (Py4JError, PySparkException) as error:
        if _is_running():
            # Half of it, which would stand in the way of the next.
            SparkContext._active_spark_context.stop()  # type: ignore[union-attr]  # noqa: SLF001  (as above)
        place = told.get("spark.master", "local")
        raise SettingsError(f"Spark does not start on {place}: {_reason(error)}") from error
    if _LEVEL not in told and not masters.is_local(str(spark.sparkContext.master)):
        log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001  (Spark has levels for all or nothing)
        log4j.core.config.Configurator.setLevel(_WAITING, log4j.Level.WARN)
    return spark


def _start_java(asked: Mapping[str, str]) -> None:
    """Start the JVM, unless one runs or ``spark-submit`` has started it and us."""
    # Else Spark takes the first python3 on PATH, which has none of what is installed here.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if masters.is_here(asked.get("spark.master", "local")):
        os.environ.setdefault("PYSPARK_PYTHON", worker_python.program())
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAll(list(asked.items()))
    with _environment(asked), no_copy_of_us():
        try:
            SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001  (to ask it what is told elsewhere)
        except PySparkException as error:
            raise SettingsError("Spark's Java ended at once; why, it has said itself") from error


@contextmanager
def no_copy_of_us() -> Iterator[None]:
    """Let PySpark start Java without forking this process first.

    It would, to run a line of Python there. Where gRPC was in use, such a copy was seen to end
    before it became Java, with gRPC telling of a socket that was closed under it.
    """
    gateway: Any = java_gateway
    if threading.current_thread() is threading.main_thread():
        gateway.Popen = _started_deaf
    try:
        yield
    finally:
        gateway.Popen = subprocess.Popen


def _started_deaf(command: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start what does not hear Ctrl-C, as PySpark would with code that runs before it."""
    del how["preexec_fn"]
    # Only the main thread may change signals; what is ignored is inherited.
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.Popen(command, **how)
    finally:
        signal.signal(signal.SIGINT, heard or signal.SIG_DFL)


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
    if masters.is_here(asked.get("spark.master", "")):
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


def _chosen(app: str, told: Mapping[str, str]) -> dict[str, str]:
    """Return our defaults, without what Spark's files, ``spark-submit`` or the caller say."""
    here = confs.HERE if masters.is_here(told.get("spark.master", "local")) else {}
    kept = {n: v for n, v in {**confs.DEFAULTS, **here}.items() if n not in told}
    return {"spark.app.name": app, **confs.NO_SHELL, **kept}


def _reason(error: Exception) -> str:
    told: Any = error.java_exception if isinstance(error, Py4JJavaError) else error
    return confs.first_line(told)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
