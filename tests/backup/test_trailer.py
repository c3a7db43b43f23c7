from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tambomq.backup import trailer
from tambomq.backup.model import BackupCounts, BackupManifest, ProtocolCount
from tambomq.errors import BackupError

RDB = b"REDIS0011 data \xff checksum"
CONTENTS = BackupCounts(3, 0, {"rsmq": ProtocolCount(1, 2)})
MANIFEST = BackupManifest(
    taken_ms=1,
    tambo="1.2.3",
    server="valkey 9.1.2",
    rdb_bytes=len(RDB),
    sha256="0" * 64,
    contents=CONTENTS,
)


def test_manifest_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(RDB + trailer.encode(MANIFEST))
    assert trailer.read(path) == MANIFEST


def test_rdb_file_alone_has_no_manifest(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(RDB)
    assert trailer.read(path) is None


def test_every_changed_byte_of_the_manifest_is_noticed(tmp_path: Path) -> None:
    path, whole = tmp_path / "a", RDB + trailer.encode(MANIFEST)
    magic = len(b"tambomq-backup-1")
    for place in range(len(RDB), len(whole) - magic):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(BackupError, match="damaged"):
            trailer.read(path)


def test_missing_data_before_the_manifest_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(RDB[5:] + trailer.encode(MANIFEST))
    with pytest.raises(BackupError, match=r"has 20 of 25 bytes"):
        trailer.read(path)


def test_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(RDB + trailer.encode(msgspec.structs.replace(MANIFEST, format=2)))
    with pytest.raises(BackupError, match="later version"):
        trailer.read(path)


def test_file_that_is_too_short_is_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"REDIS")
    with pytest.raises(BackupError, match="neither a backup nor an RDB file"):
        trailer.read(path)
