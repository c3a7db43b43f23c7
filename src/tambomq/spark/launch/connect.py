"""Sessions by Spark Connect: the driver is a server elsewhere, and no Java is needed here.

The package travels there as an artifact of the session, so reads and writes of tables need nothing
installed but what is compiled. Streams do: Spark 4.3 plans them without the session's artifacts.
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
from tambomq.spark import masters
from tambomq.spark.confs import NEEDED, ZONE, change, first_line
from tambomq.spark.shipping import sources, zipped

_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
_SHIPPED: Final = "spark.tambomq.shipped"


def running() -> SparkSession | None:
    """Return the session by Spark Connect that this program has."""
    module: Any = sys.modules.get("pyspark.sql.connect.session")
    if module is None:
        return None
    kind = module.SparkSession
    found: SparkSession | None = kind.getActiveSession() or kind._get_default_session()  # noqa: SLF001  (the only way to ask without making one)
    return found


def leave() -> None:
    """Forget that the last session was one by Spark Connect; Spark itself would not."""
    os.environ.pop(_MODE, None)


def connect(app: str, url: str | None, asked: Mapping[str, str]) -> SparkSession:
    """Return the session with the server at *url*, or the running one, and have the package there.

    Raises `SettingsError` where nobody listens, and where the running one is with another server.
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
    if SparkContext._active_spark_context is not None:  # noqa: SLF001  (nothing else tells it without starting one)
        raise SettingsError("a session without Spark Connect runs already: stop() it first")
    masters.reach(url, os.environ)
    try:
        return SparkSession.builder.remote(url).appName(app).getOrCreate()
    except ImportError as error:
        raise SettingsError(
            f"Spark Connect wants more: {how_to_install('connect')} ({first_line(error)})"
        ) from error
    except PySparkException as error:
        leave()
        raise SettingsError(f"no session by Spark Connect: {first_line(error)}") from error


def _endpoint(spark: Any) -> str:
    return str(spark.client._builder.endpoint)  # noqa: SLF001  (in the open there is only the host)


def _ship(spark: SparkSession) -> None:
    package = zipped()
    if spark.conf.get(_SHIPPED, "") == package.name:
        return
    spark.addArtifacts(str(package), pyfile=True)
    for source in sources():
        spark.dataSource.register(source)
    spark.conf.set(_SHIPPED, package.name)
