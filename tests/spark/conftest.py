"""One Spark for all tests that need one, gone when they are done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tambomq.spark import session

_ENDS_WITHIN_S = 60
_LAST_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each test here last longer than others: any may be the one that starts Spark."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_LAST_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores; to start it takes seconds, once."""
    home = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.local.dir": home / "local",
        "spark.sql.warehouse.dir": home / "warehouse",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.streaming.stopTimeout": "30s",
    }
    found = session("tests", master="local[2]", conf=conf)
    yield found
    found.stop()
    _end_java()


def _end_java() -> None:
    """Let the JVM end, which Spark leaves to the end of the process."""
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_ENDS_WITHIN_S)
    SparkContext._gateway = SparkContext._jvm = None
