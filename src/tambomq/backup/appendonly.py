"""The append-only files of a data directory: replaced as a whole, by one rename.

The server loads what the manifest names: a base, which may be an RDB file, and the commands since.
A new base is written under a name of its own; then a new manifest replaces the old one. Whenever
that is interrupted, the server loads all of the old data or all of the new.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tambomq.embedded.datadir import make_private

FOLDER: Final = "appendonlydir"
"""In a data directory."""
_NAME: Final = "appendonly.aof"
_MANIFEST: Final = f"{_NAME}.manifest"
_DRAFT: Final = ".restore.partial"
_FILE: Final = re.compile(rf"{re.escape(_NAME)}\.(\d+)\.(base\.rdb|base\.aof|incr\.aof)")


@dataclass(frozen=True, slots=True)
class _Files:
    """Append-only files, and their highest number."""

    names: list[str]
    last: int


def has_data(data_dir: Path) -> bool:
    """Whether *data_dir* has append-only files that a server loads."""
    return _manifest(data_dir).exists()


def has_files(data_dir: Path) -> bool:
    """Whether *data_dir* has data, or commands that no manifest names, such as after a crash.

    A server would not load these, and would overwrite them.
    """
    commands = (data_dir / FOLDER).glob(f"{_NAME}.*.incr.aof")
    return has_data(data_dir) or any(each.stat().st_size for each in commands)


def draft(data_dir: Path) -> Path:
    """Return where to write a new base; the server ignores it. Raises `OSError`."""
    make_private(data_dir / FOLDER)
    return data_dir / FOLDER / _DRAFT


def replace(data_dir: Path) -> Path | None:
    """Make the `draft` the data of *data_dir*; return where the old data is now, if there was any.

    No server may run. Raises `OSError`, and the old data is still in place then.
    """
    folder = data_dir / FOLDER
    old = _found(folder)
    aside = _linked_aside(data_dir, [*old.names, _MANIFEST]) if has_files(data_dir) else None
    (folder / _DRAFT).replace(folder / base_name(old.last + 1))
    write_manifest(folder, old.last + 1)
    for name in old.names:
        # The new data is in place already: what is left of the old takes room, and no more.
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)
    return aside


def base_name(number: int) -> str:
    """Return the name of base *number*."""
    return f"{_NAME}.{number}.base.rdb"


def write_manifest(folder: Path, number: int) -> None:
    """Make the base *number* in *folder* the data, with no commands since.

    The server would make a file for the commands itself, and append to one that is there already:
    so a file of the same number is emptied, and named too.
    """
    commands = f"{_NAME}.{number}.incr.aof"
    text = f"file {base_name(number)} seq {number} type b\nfile {commands} seq {number} type i\n"
    fresh = folder / f"temp-{_MANIFEST}"
    write_synced(folder / commands, b"")
    write_synced(fresh, text.encode())
    sync_folder(folder)
    fresh.replace(folder / _MANIFEST)
    sync_folder(folder)


def write_synced(path: Path, data: bytes) -> None:
    """Write *data* to *path*, readable by its owner only, and wait until it is on the disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the names in *path* are on the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _manifest(data_dir: Path) -> Path:
    return data_dir / FOLDER / _MANIFEST


def _found(folder: Path) -> _Files:
    """Return the files in *folder*, those that the manifest does not name too."""
    names = (each.name for each in folder.iterdir())
    found = [match for name in sorted(names) if (match := _FILE.fullmatch(name))]
    return _Files([match[0] for match in found], max((int(m[1]) for m in found), default=0))


def _linked_aside(data_dir: Path, names: list[str]) -> Path:
    """Return a new data directory beside the data, with the same files."""
    aside = _new_folder(data_dir)
    make_private(aside / FOLDER)
    for name in names:
        source, target = data_dir / FOLDER / name, aside / FOLDER / name
        if not source.exists():
            continue
        try:
            target.hardlink_to(source)
        except OSError:
            # Not every file system has hard links.
            shutil.copy2(source, target)
            _sync_file(target)
    # All of it, before anything of the old data is removed.
    for folder in (aside / FOLDER, aside, data_dir):
        sync_folder(folder)
    return aside


def _new_folder(data_dir: Path) -> Path:
    name = time.strftime("before-restore-%Y%m%dT%H%M%SZ", time.gmtime())
    number = 1
    while True:
        path = data_dir / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return path
