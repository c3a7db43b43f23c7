"""The file of a backup: an RDB file, then what it says about itself, as bytes.

::

    RDB file      as the server wrote it
    manifest      JSON
    footer        <length of the manifest, 4 bytes> <its CRC-32, 4 bytes> "tambomq-backup-1"

Loaders of RDB files stop at the end that the file itself marks, so any Redis or Valkey that knows
its version of the format loads a backup as its ``dump.rdb``.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final

import msgspec

from tambomq.backup.model import FORMAT, BackupManifest
from tambomq.errors import BackupError

_MAGIC: Final = b"tambomq-backup-1"
_FOOTER: Final = struct.Struct(">II16s")
_LONGEST: Final = 1 << 20


def encode(manifest: BackupManifest) -> bytes:
    """Return what follows the RDB file."""
    text = msgspec.json.encode(manifest)
    return text + _FOOTER.pack(len(text), zlib.crc32(text), _MAGIC)


def read(path: Path) -> BackupManifest | None:
    """Read what *path* says about itself; `None` if it is an RDB file alone.

    Raises `BackupError`, `OSError`.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < _FOOTER.size:
            raise BackupError(f"{path} is neither a backup nor an RDB file")
        file.seek(size - _FOOTER.size)
        length, check, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        if magic != _MAGIC:
            return None
        start = size - _FOOTER.size - length
        if length > _LONGEST or start < 0:
            raise BackupError(f"{path} is damaged: what it says about itself has a wrong length")
        file.seek(start)
        text = file.read(length)
    if zlib.crc32(text) != check:
        raise BackupError(f"{path} is damaged: what it says about itself has another checksum")
    return _checked(path, text, start)


def _checked(path: Path, text: bytes, start: int) -> BackupManifest:
    try:
        written = msgspec.json.decode(text)["format"]
        if written > FORMAT:
            raise BackupError(f"{path} was written by a later version of TamboMQ: use that one")
        manifest = msgspec.json.decode(text, type=BackupManifest)
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise BackupError(f"{path} is damaged: {error}") from error
    if manifest.rdb_bytes != start:
        raise BackupError(f"{path} is damaged: it has {start} of {manifest.rdb_bytes} bytes")
    return manifest
