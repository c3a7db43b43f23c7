"""The server that a backup is taken from: the embedded one of a data directory, or another."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from tambomq.backup import appendonly
from tambomq.embedded.access import ADMIN, ADMIN_PASSWORD
from tambomq.embedded.datadir import DataDir
from tambomq.embedded.server import Embedded
from tambomq.errors import BackupError, DataDirBusy
from tambomq.store.endpoint import Endpoint, endpoint
from tambomq.store.features import is_cluster
from tambomq.store.sync import Store

# The shortest limit of any system on the path of a Unix socket, without its final NUL.
_SOCKET_NAME_BYTES: Final = 103
# Interactive: long enough for a server that restarts, short enough for a user who waits.
_PATIENCE_S: Final = 2.0


@contextmanager
def embedded_source(data_dir: Path) -> Iterator[Endpoint]:
    """Yield the embedded server of *data_dir*: the one that runs, or one started meanwhile.

    Raises `BackupError` if there is no data, or it is another user's.
    """
    if not appendonly.has_data(data_dir):
        raise BackupError(
            f"there is no data in {data_dir}: name another --data-dir, or a server with --redis-url"
        )
    found = DataDir(data_dir)
    try:
        refuse_foreign(data_dir)
        found.acquire()
        found.release()
    except DataDirBusy:
        with _socket(found) as socket:
            yield Endpoint(path=socket, user=ADMIN, password=_password(found.path))
        return
    with Embedded(data_dir, maxmemory_bytes=0, private=True) as server, _socket(server.dir) as at:
        yield Endpoint(path=at, user=ADMIN, password=_password(server.dir.path))


def external_source(url: str) -> Endpoint:
    """Return the server at *url*. Raises `BackupError` for a cluster, and `StoreError`."""
    server = endpoint(url)
    with closing(Store(server, patience_s=_PATIENCE_S)) as store:
        if store.run(is_cluster()):
            raise BackupError(
                f"{server} is a cluster, and a backup is of one server: copy the append-only "
                "files or snapshots of each node, as its manual says"
            )
    return server


def refuse_foreign(data_dir: Path) -> None:
    """Raise `BackupError` if *data_dir* is another user's: files of ours would lock it out."""
    owner = data_dir.stat().st_uid if data_dir.exists() else os.geteuid()
    if owner != os.geteuid():
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"#{owner}"
        raise BackupError(f"{data_dir} belongs to {name}: run this as that user, sudo -u {name} …")


def _password(data_dir: Path) -> str:
    try:
        return (data_dir / ADMIN_PASSWORD).read_text("utf-8").strip()
    except OSError as error:
        raise BackupError(f"cannot read {error.filename}: {error.strerror}") from error


@contextmanager
def _socket(directory: DataDir) -> Iterator[str]:
    """Yield a path of the server's socket that is not too long for a client."""
    path = directory.socket
    if not path.exists():
        raise BackupError(
            f"the server of {directory.path} has no socket there: give its address, --redis-url"
        )
    if len(os.fsencode(path)) <= _SOCKET_NAME_BYTES:
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="tambo-") as folder:
        link = Path(folder, "data")
        link.symlink_to(path.parent)
        yield str(link / path.name)
