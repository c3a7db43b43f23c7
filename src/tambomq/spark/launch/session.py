"""Spark sessions in which queues are tables, on machines where Spark was never set up."""

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

from tambomq.spark.launch import class_archive as archive
from tambomq.spark.launch import conf as confs
from tambomq.spark.launch import connect, java, masters, worker_python
from tambomq.spark.launch.shipping import ship

_LEVEL: Final = "spark.log.level"

# This logger warns when a job waits for workers that the cluster does not have.
_WAITING: Final = "org.apache.spark.scheduler.TaskSchedulerImpl"


def session(
    app: str = "tambomq", *, master: str | None = None, conf: Mapping[str, Any] | None = None
) -> SparkSession:
    """Return a Spark session in which queues are tables; the running one, if there is one.

    *master* is where it runs: ``local[2]``, ``spark://host:7077``, ``yarn``, …, or ``sc://host``
    for Spark Connect; by default what Spark's own settings say, else all cores of this machine.
    *conf* overrides all defaults chosen here. Workers of a cluster are sent the package.

    Raises `SettingsError` if no Java is found, if nothing listens at *master*, or for settings
    that a running session cannot change any more.
    """
    asked = {name: _text(value) for name, value in (conf or {}).items()}
    target = master if master is not None else _configured_master(asked)
    if target is not None:
        masters.check(target)
    remote = connect.running()
    if masters.is_remote(target or "") or (target is None and remote is not None):
        return connect.connect(app, target, asked)
    if remote is not None:
        raise SettingsError("a session by Spark Connect runs already: stop() it first")
    if target is not None:
        asked["spark.master"] = target
    spark = _reconfigured(asked) if _is_running() else _started(app, asked)
    if not masters.is_local(str(spark.sparkContext.master)):
        ship(spark)
    return spark


def _configured_master(asked: dict[str, str]) -> str | None:
    """Return the master from *asked* or the environment, before Spark is started."""
    if (remote := asked.pop("spark.remote", None)) is not None:
        return remote
    if (master := asked.get("spark.master")) is not None:
        return master
    return None if _is_running() else os.environ.get("SPARK_REMOTE") or None


def _is_running() -> bool:
    return SparkContext._active_spark_context is not None  # noqa: SLF001  (the only check that does not start one)


def _reconfigured(asked: dict[str, str]) -> SparkSession:
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
    given = {**dict(SparkConf().getAll()), **asked}
    if "spark.master" not in asked:
        masters.reach(given.get("spark.master", ""), os.environ)
    wanted: dict[str, Any] = {**confs.NEEDED, **_chosen(app, given), **asked}
    try:
        spark = SparkSession.builder.config(map=wanted).getOrCreate()
    except (Py4JError, PySparkException) as error:
        if _is_running():
            # Stop the half-started context, which would block the next session.
            SparkContext._active_spark_context.stop()  # type: ignore[union-attr]  # noqa: SLF001  (as above)
        target = given.get("spark.master", "local")
        raise SettingsError(f"Spark does not start on {target}: {_reason(error)}") from error
    if _LEVEL not in given and not masters.is_local(str(spark.sparkContext.master)):
        log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001  (Spark has levels for all or nothing)
        log4j.core.config.Configurator.setLevel(_WAITING, log4j.Level.WARN)
    return spark


def _start_java(asked: Mapping[str, str]) -> None:
    """Start the JVM, unless one runs already or ``spark-submit`` has started this program."""
    # Otherwise Spark takes the first python3 on PATH, which may lack our packages.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if masters.is_here(asked.get("spark.master", "local")):
        os.environ.setdefault("PYSPARK_PYTHON", worker_python.program())
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAll(list(asked.items()))
    with _environment(asked), without_fork():
        try:
            SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001  (SparkConf reads Spark's files through it)
        except PySparkException as error:
            raise SettingsError(
                "Spark's Java ended at once; its own output above says why"
            ) from error


@contextmanager
def without_fork() -> Iterator[None]:
    """Make PySpark start Java without running Python code in a forked copy of this process.

    With gRPC in use, such a copy (PySpark's ``preexec_fn``) was seen to crash before it became
    Java, with gRPC complaining about a closed socket.
    """
    gateway: Any = java_gateway
    if threading.current_thread() is threading.main_thread():
        gateway.Popen = _popen_without_sigint
    try:
        yield
    finally:
        gateway.Popen = subprocess.Popen


def _popen_without_sigint(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start *command* with SIGINT ignored, as PySpark does with a ``preexec_fn``."""
    del options["preexec_fn"]
    # Only the main thread may set signal handlers; ignored signals are inherited.
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.Popen(command, **options)
    finally:
        signal.signal(signal.SIGINT, previous or signal.SIG_DFL)


@contextmanager
def _environment(asked: Mapping[str, str]) -> Iterator[None]:
    """Set the environment variables that the JVM needs at its start, and restore them."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None:  # noqa: SLF001  (as above)
        yield
        return
    found = java.find(os.environ)
    # Spark does not split quoted options, and the last one wins.
    words = [f'"{word}"' for word in archive.options(found, os.environ)]
    words.append(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    wanted = {
        "JAVA_HOME": java.home_for(found, os.environ),
        "SPARK_SUBMIT_OPTS": " ".join(words).strip() or None,
    }
    if masters.is_here(asked.get("spark.master", "")):
        # Otherwise Spark resolves the host name, and logs warnings about it.
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


def _chosen(app: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return our defaults, without settings of Spark's files, ``spark-submit`` or the caller."""
    here = confs.HERE if masters.is_here(given.get("spark.master", "local")) else {}
    kept = {n: v for n, v in {**confs.DEFAULTS, **here}.items() if n not in given}
    return {"spark.app.name": app, **confs.NO_SHELL, **kept}


def _reason(error: Exception) -> str:
    shown: Any = error.java_exception if isinstance(error, Py4JJavaError) else error
    return confs.first_line(shown)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
