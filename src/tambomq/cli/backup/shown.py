"""What ``tambo backup`` and ``tambo restore`` print, and the bar while they work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tambomq.backup.model import BackupCounts, BackupManifest
from tambomq.backup.write import BackupProgress
from tambomq.cli.input import progress
from tambomq.cli.times import utc
from tambomq.text import in_units

_MIB: Final = 1 << 20
_PROTOCOLS: Final = {"rsmq": "RSMQ", "chasqui": "ChasquiMQ", "gomq": "GOMQ"}


@contextmanager
def progress_bar(doing: str, *, shown: bool) -> Iterator[BackupProgress]:
    """Yield what draws a bar while data is copied, if stderr is a terminal."""
    with progress(doing, "MiB", None, shown=shown) as tick:

        def on_bytes(done: int) -> None:
            tick(done // _MIB, done)

        yield BackupProgress(on_bytes)


def rows(
    manifest: BackupManifest | None, contents: BackupCounts | None
) -> Iterator[tuple[str, str]]:
    """Yield what a backup is and what is in it, for a table."""
    if manifest is not None:
        yield "data of", utc(manifest.taken_ms)
        yield "from", manifest.server or "a server that does not say its version"
        yield "size", in_units(manifest.rdb_bytes)
    if contents is None:
        yield "verified", "no"
        return
    yield "keys", f"{contents.keys:,}"
    for name, found in contents.protocols.items():
        counts = (_counted(found.queues, "queue"), _counted(found.messages, "message"))
        yield _PROTOCOLS.get(name, name), ", ".join(counts)
    yield "verified", "loaded by a server, and counted"


def fields(manifest: BackupManifest | None, contents: BackupCounts | None) -> dict[str, Any]:
    """Return the same for JSON."""
    taken = {} if manifest is None else {"taken": utc(manifest.taken_ms), "manifest": manifest}
    return {**taken, "contents": contents, "verified": contents is not None}


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
