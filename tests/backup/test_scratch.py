from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tambomq.backup.scratch import loaded_contents
from tambomq.errors import BackupError
from tests.backup.filled import backed_up, filled, names_in


@pytest.fixture(scope="module")
def rdb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rdb")
    done = backed_up(filled(folder / "data"), folder / "a.rdb", verify=False)
    data = done.path.read_bytes()
    (folder / "plain.rdb").write_bytes(data[: done.manifest.rdb_bytes])
    return folder / "plain.rdb"


def test_file_is_loaded_either_way_and_stays_as_it_is(rdb: Path) -> None:
    before = rdb.read_bytes()
    as_snapshot, as_base = loaded_contents(rdb), loaded_contents(rdb, as_base=True)
    assert as_snapshot == as_base
    assert as_snapshot.keys > 5
    assert rdb.read_bytes() == before


def test_base_with_something_after_it_is_refused_and_not_cut(rdb: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.rdb"
    longer.write_bytes(rdb.read_bytes() + b"more")
    with pytest.raises(BackupError, match="cannot be loaded"):
        loaded_contents(longer, as_base=True)
    assert longer.read_bytes().endswith(b"more")


def test_nothing_is_left_of_the_server(
    rdb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    loaded_contents(rdb)
    assert names_in(tmp_path) == []


def test_file_with_fewer_keys_than_it_says_is_refused(rdb: Path, tmp_path: Path) -> None:
    data = rdb.read_bytes()
    place = data.index(b"\xfe\x00\xfb") + 3
    more = tmp_path / "more.rdb"
    # Without a checksum (eight zeros) the server loads what it finds.
    more.write_bytes(data[:place] + bytes([data[place] + 1]) + data[place + 1 : -8] + bytes(8))
    with pytest.raises(BackupError, match=r"has \d+ of the \d+ keys"):
        loaded_contents(more)
