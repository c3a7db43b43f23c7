"""Folder names of partitions by queue, for any queue name.

Spark writes a partition's value into the path, which cannot hold every name: it has at most 255
bytes, no NUL, and only ASCII where Java runs in the C locale. The folder of any other queue is
named by a digest, ``queue=%3Dsha256-<64 digits>``; its files have the name in the column `NAME`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

NAME: Final = "queue_name"
"""The column with the queue's name, in folders that are named by a digest."""
_HASH_PREFIX: Final = "=sha256-"
_FOLDER: Final = re.compile(r"/queue=%3Dsha256-[0-9a-f]{64}/")
_LONGEST: Final = 255 - len("queue=")
_LONG: Final = r"[^A-Za-z0-9._ -]"
"""Characters that may be escaped as three in a path."""
_ASCII: Final = r"[\x01-\x7f]+"
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The folder name that Spark reads as null."""


def is_plain(queue: str) -> bool:
    """Whether *queue* can be the name of a folder."""
    return (
        re.fullmatch(_ASCII, queue) is not None
        and len(re.sub(_LONG, "%25", queue)) <= _LONGEST
        and queue != _NO_VALUE
        and not queue.startswith(_HASH_PREFIX)
    )


def is_coded(path: str) -> bool:
    """Whether the file at *path* is in a folder that is named by a digest."""
    return _FOLDER.search(path) is not None


def stored(rows: DataFrame, queues: Iterable[str]) -> DataFrame:
    """Return *rows* of *queues* with values that can be folder names, for writing."""
    if all(map(is_plain, queues)):
        return rows
    queue = F.col("queue")
    plain = (
        queue.rlike(rf"\A{_ASCII}\z")
        & (F.length(F.regexp_replace(queue, _LONG, "%25")) <= _LONGEST)
        & (queue != _NO_VALUE)
        & ~queue.startswith(_HASH_PREFIX)
    )
    coded = F.concat(F.lit(_HASH_PREFIX), F.sha2(queue.cast("binary"), 256))
    return rows.withColumns(
        {NAME: F.when(~plain, queue), "queue": F.when(plain, queue).otherwise(coded)}
    )


def named(rows: DataFrame) -> DataFrame:
    """Return *rows* from folders named by a digest, with the real queue names."""
    return rows.withColumn("queue", F.col(NAME)).drop(NAME)
