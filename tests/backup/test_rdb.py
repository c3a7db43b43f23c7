from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.backup.rdb import RdbHead, read_head
from tambomq.errors import BackupError

AUX = (
    b"\xfa\x0avalkey-ver\x059.1.2"
    b"\xfa\x05ctime\xc2\x80\xd7\xb4\x65"
    b"\xfa\x08aof-base\xc0\x00"
)  # fmt: skip
HEAD = b"REDIS0011" + AUX + b"\xfe\x00\xfb\x43\xe8\x05"


def head_of(path: Path, data: bytes) -> RdbHead:
    path.write_bytes(data)
    return read_head(path)


def test_head_says_version_time_and_number_of_keys(tmp_path: Path) -> None:
    head = head_of(tmp_path / "a", HEAD + b"whatever follows")
    assert head == RdbHead(11, "valkey 9.1.2", 0x65B4D780 * 1000, 1000)


def test_long_length_is_read(tmp_path: Path) -> None:
    data = b"VALKEY080\xfe\x00\xfb\x80\x00\x0f\x42\x40\x00"
    assert head_of(tmp_path / "a", data) == RdbHead(80, "", 0, 1_000_000)


@pytest.mark.parametrize("size", range(len(b"REDIS0011"), len(HEAD) - 2))
def test_truncated_head_still_has_the_version(tmp_path: Path, size: int) -> None:
    assert head_of(tmp_path / "a", HEAD[:size]).version == 11


@pytest.mark.parametrize("data", [b"", b"REDIS", b"REDISxxxx", b"a text file, and no data"])
def test_file_that_is_not_an_rdb_file_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BackupError, match="neither a backup nor an RDB file"):
        head_of(tmp_path / "a", data)


@given(st.binary(max_size=200))
def test_garbage_after_the_version_raises_nothing(
    tmp_path_factory: pytest.TempPathFactory, rest: bytes
) -> None:
    head = head_of(tmp_path_factory.getbasetemp() / "garbage", b"REDIS0011" + rest)
    assert head.version == 11
