"""Sends the package to workers that may not have it installed.

Spark sends a data source to its workers by name. Workers of a cluster import it from a zip that is
sent with the job. Compiled packages cannot be sent: hiredis, msgspec and pyarrow must be installed.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Final

from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

import tambomq
from tambomq.spark.launch import cache

FORMATS: Final = ("rsmq", "chasqui", "gomq", "tambo")
"""Each has a module ``pyspark_<format>``, by which Spark finds it."""
_STREAMS: Final = "streaming_job"


def ship(spark: SparkSession) -> None:
    """Ship the code of all formats to the workers of *spark*. Idempotent."""
    context = spark.sparkContext
    package = zipped()
    if any(each.endswith(f"/{package.name}") for each in context.listFiles):
        return
    context.addPyFile(str(package))
    # Spark 4.3 looks for it there when it plans a stream.
    cache.put(Path(SparkFiles.getRootDirectory(), _STREAMS, package.name), package.read_bytes())
    # Spark passes the zip on only for sources that are registered explicitly.
    for source in sources():
        spark.dataSource.register(source)


def sources() -> Iterator[type[DataSource]]:
    """Yield the sources of all formats that are installed."""
    for name in FORMATS:
        if util.find_spec(f"pyspark_{name}") is not None:
            yield import_module(f"pyspark_{name}").DefaultSource


def zipped() -> Path:
    """Return a zip of the installed package; rebuilt when a file has changed."""
    root = Path(tambomq.__file__).parent
    if root.parent.is_file():
        return root.parent  # The package was imported from a zip.
    files = sorted(_files(root))
    stamps = ((path.as_posix(), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
    digest = hashlib.sha256(repr(list(stamps)).encode()).hexdigest()[:16]
    made = cache.folder() / f"tambomq-{metadata.version('tambomq')}-{digest}.zip"
    if not made.exists():
        cache.put(made, _zip(files, root.parent))
    return made


def _files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path
    for name in FORMATS:
        if (path := root.parent / f"pyspark_{name}.py").exists():
            yield path


def _zip(files: list[Path], root: Path) -> bytes:
    content = io.BytesIO()
    # Installers may date files to 1970, which zip cannot represent.
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path in files:
            archive.write(path, path.relative_to(root))
    return content.getvalue()
