"""Reads the beginning of an RDB file: the server's version, the time, and how many keys there are.

The server writes these before the keys, at the moment of the copy. A file with functions or module
data is read up to those.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from tambomq.errors import BackupError

_MAGIC: Final = (b"REDIS", b"VALKEY")
_HEAD_BYTES: Final = 9
_LONGEST: Final = 1 << 16
_AUX, _RESIZE_DB, _SELECT_DB = 0xFA, 0xFB, 0xFE
_14_BITS, _32_BITS, _64_BITS, _ENCODED = 0x40, 0x80, 0x81, 0xC0


@dataclass(frozen=True, slots=True)
class RdbHead:
    """The beginning of an RDB file."""

    version: int
    """Of the format."""
    server: str
    """Name and version of the server that wrote it; empty if it does not say."""
    taken_ms: int
    """When, to the second; 0 if it does not say."""
    keys: int | None
    """Those of the first database; `None` if it does not say."""


def read_head(path: Path) -> RdbHead:
    """Read the beginning of *path*. Raises `BackupError`, `OSError`."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        magic = next((magic for magic in _MAGIC if head.startswith(magic)), b"")
        version = head[len(magic) :]
        if not magic or not version.isdigit():
            raise BackupError(f"{path} is neither a backup nor an RDB file")
        fields, keys = _fields(file)
    taken_s = fields.get(b"ctime", b"")
    taken_ms = 1000 * int(taken_s) if taken_s.isdigit() else 0
    return RdbHead(int(version), _server(fields), taken_ms, keys)


def _fields(file: BinaryIO) -> tuple[dict[bytes, bytes], int | None]:
    fields: dict[bytes, bytes] = {}
    try:
        while (code := file.read(1)[0]) in (_AUX, _SELECT_DB):
            if code == _AUX:
                name = _string(file)
                fields[name] = _string(file)
            else:
                _length(file)
        return fields, _length(file) if code == _RESIZE_DB else None
    except (IndexError, ValueError):
        # It breaks off, or has what we do not know: loading it will tell.
        return fields, None


def _server(fields: dict[bytes, bytes]) -> str:
    for name in ("valkey", "redis"):
        if version := fields.get(f"{name}-ver".encode()):
            return f"{name} {version.decode(errors='replace')}"
    return ""


def _string(file: BinaryIO) -> bytes:
    first = file.read(1)[0]
    if first & _ENCODED == _ENCODED:
        # A number of 1, 2 or 4 bytes; compressed text is not among the fields.
        size = {0xC0: 1, 0xC1: 2, 0xC2: 4}[first] if first in (0xC0, 0xC1, 0xC2) else -1
        if size < 0:
            raise ValueError(first)
        return b"%d" % int.from_bytes(file.read(size), "little", signed=True)
    size = _length_after(first, file)
    if size > _LONGEST:
        raise ValueError(size)
    return file.read(size)


def _length(file: BinaryIO) -> int:
    return _length_after(file.read(1)[0], file)


def _length_after(first: int, file: BinaryIO) -> int:
    if first < _14_BITS:
        return first
    if first < _32_BITS:
        return (first & 0x3F) << 8 | file.read(1)[0]
    if first in (_32_BITS, _64_BITS):
        return int.from_bytes(file.read(4 if first == _32_BITS else 8), "big")
    raise ValueError(first)
