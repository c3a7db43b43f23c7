"""A throw-away server that loads an RDB file: the proof that a backup can be restored.

It listens on a Unix socket in a directory that only this user can enter, on no port, writes
nothing, and ends with this process.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from tambomq.backup import appendonly
from tambomq.backup.contents import count
from tambomq.backup.model import BackupCounts
from tambomq.backup.rdb import read_head
from tambomq.embedded.server import Embedded
from tambomq.errors import BackupError, EmbeddedError
from tambomq.store.endpoint import Endpoint
from tambomq.store.sync import Store

_RDB: Final = "dump.rdb"


def loaded_contents(
    rdb: Path,
    *,
    db: int = 0,
    as_base: bool = False,
    on_loading: Callable[[float], None] = lambda _: None,
) -> BackupCounts:
    """Load *rdb* and return what is in it; *on_loading* gets the percentage.

    It is loaded as a snapshot, after which there may be something else in the file, or, with
    *as_base*, as a data directory has it. Raises `BackupError` if it cannot be loaded completely,
    or has fewer keys than its server had when it was written.
    """
    folder = Path(tempfile.mkdtemp(prefix="tambo-"))
    server = Embedded(folder, maxmemory_bytes=0, ephemeral=not as_base, private=True)
    try:
        _place(rdb, folder, as_base=as_base)
        server.start(on_loading)
        with closing(Store(Endpoint(path=str(server.dir.socket), db=db))) as store:
            found = count(store)
    except EmbeddedError as error:
        why = _of_the_server(rdb)
        raise BackupError(f"the data cannot be loaded{why}: {error}") from error
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    expected = read_head(rdb).keys
    if expected is not None and found.keys < expected:
        raise BackupError(f"the data has {found.keys} of the {expected} keys that its server had")
    return found


def _place(rdb: Path, folder: Path, *, as_base: bool) -> None:
    if not as_base:
        (folder / _RDB).symlink_to(rdb.absolute())
        return
    files = folder / appendonly.FOLDER
    files.mkdir()
    (files / appendonly.base_name(1)).symlink_to(rdb.absolute())
    appendonly.write_manifest(files, 1)


def _of_the_server(rdb: Path) -> str:
    head = read_head(rdb)
    return f" (format {head.version}{f' of {head.server}' if head.server else ''})"
