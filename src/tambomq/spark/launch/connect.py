"""Spark Connect sessions: the driver is a remote server, and no Java is needed locally.

The package is sent there as an artifact of the session, so batch reads and writes need only the
compiled packages installed. Streams need all: Spark 4.3 plans them without session artifacts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tambomq.errors import SettingsError
from tambomq.extras import how_to_install
from tambomq.spark.launch import masters
from tambomq.spark.launch.conf import NEEDED, ZONE, change, first_line
from tambomq.spark.launch.shipping import sources, zipped

_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
_SHIPPED: Final = "spark.tambomq.shipped"


def running() -> SparkSession | None:
    """Return the Spark Connect session of this program; `None` if there is none."""
    module: Any = sys.modules.get("pyspark.sql.connect.session")
    if module is None:
        return None
    kind = module.SparkSession
    found: SparkSession | None = kind.getActiveSession() or kind._get_default_session()  # noqa: SLF001  (the only way to ask without making one)
    return found


def leave() -> None:
    """Reset PySpark's Connect mode, which it keeps after a session ends."""
    os.environ.pop(_MODE, None)


def connect(app: str, url: str | None, asked: Mapping[str, str]) -> SparkSession:
    """Return the session with the server at *url*, or the running one, and send it the package.

    Raises `SettingsError` if nothing listens, or if the running one is with another server.
    """
    found = running()
    if found is None:
        found = _new(app, str(url))
    elif url is not None and (other := _endpoint(found)) != masters.endpoint(url):
        raise SettingsError(f"a session with {other} runs already: stop() it first")
    zone = {} if ZONE in found.conf.getAll else {ZONE: "UTC"}
    change(found, {**NEEDED, **zone, **asked})
    _ship(found)
    return found


def _new(app: str, url: str) -> SparkSession:
    if SparkContext._active_spark_context is not None:  # noqa: SLF001  (the only check that does not start one)
        raise SettingsError("a session without Spark Connect runs already: stop() it first")
    masters.reach(url, os.environ)
    try:
        return SparkSession.builder.remote(url).appName(app).getOrCreate()
    except ImportError as error:
        raise SettingsError(
            f"Spark Connect needs more packages: {how_to_install('connect')} ({first_line(error)})"
        ) from error
    except PySparkException as error:
        leave()
        raise SettingsError(f"no Spark Connect session: {first_line(error)}") from error


def _endpoint(spark: Any) -> str:
    return str(spark.client._builder.endpoint)  # noqa: SLF001  (the public API has only the host)


def _ship(spark: SparkSession) -> None:
    package = zipped()
    if spark.conf.get(_SHIPPED, "") == package.name:
        return
    spark.addArtifacts(str(package), pyfile=True)
    for source in sources():
        spark.dataSource.register(source)
    spark.conf.set(_SHIPPED, package.name)
