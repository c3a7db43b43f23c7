from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tambomq.backup.restore import check_backup, restore_backup
from tambomq.embedded.server import Embedded
from tambomq.errors import BackupError, DataDirBusy
from tests.backup.filled import MESSAGES, backed_up, bodies, filled, names_in, opened

SMALL_FILES = """
import resource, sys
from pathlib import Path
from tambomq.backup.restore import restore_backup
from tambomq.errors import BackupError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    restore_backup(Path(sys.argv[1]), Path(sys.argv[2]), force=True)
except BackupError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backup")
    return backed_up(filled(folder / "data"), folder / "a.rdb").path


@pytest.fixture(scope="module")
def something_else(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("else") / "data"
    with opened(path) as client:
        client.set("name", "value")
    return path


@pytest.fixture
def other(something_else: Path, tmp_path: Path) -> Path:
    """A data directory with something else in it."""
    return Path(shutil.copytree(something_else, tmp_path / "other"))


def changed(backup: Path, path: Path, place: int) -> Path:
    """A copy of *backup* at *path*, with another byte at *place*."""
    data = bytearray(backup.read_bytes())
    data[place] ^= 0x01
    path.write_bytes(data)
    return path


def files_in(data_dir: Path) -> dict[str, bytes]:
    """The append-only files, and what was set aside."""
    found = (*data_dir.glob("appendonlydir/*"), *data_dir.glob("before-restore-*/*/*"))
    return {str(path.relative_to(data_dir)): path.read_bytes() for path in found}


def value_in(data_dir: Path) -> object:
    with opened(data_dir) as client:
        return client.get("name")


def test_restored_server_has_every_message(backup: Path, tmp_path: Path) -> None:
    done = restore_backup(backup, tmp_path / "new")
    assert done.aside is None
    assert done.manifest is not None
    assert bodies(tmp_path / "new") == [b"order %d" % number for number in range(MESSAGES)]


def test_data_that_is_written_after_a_restore_is_kept(backup: Path, tmp_path: Path) -> None:
    restore_backup(backup, tmp_path / "new")
    with opened(tmp_path / "new") as client:
        client.set("name", "written since")
    assert value_in(tmp_path / "new") == b"written since"


def test_data_is_replaced_with_force_only_and_then_set_aside(backup: Path, other: Path) -> None:
    password = (other / "admin.password").read_text()
    before = files_in(other)
    with pytest.raises(BackupError, match="set that data aside with --force"):
        restore_backup(backup, other)
    assert files_in(other) == before
    aside = restore_backup(backup, other, force=True).aside
    assert aside is not None
    assert len(bodies(other)) == MESSAGES
    assert value_in(other) is None
    assert (other / "admin.password").read_text() == password
    assert value_in(aside) == b"value"


def test_commands_that_no_manifest_names_are_data_too(backup: Path, other: Path) -> None:
    (other / "appendonlydir" / "appendonly.aof.manifest").unlink()
    before = files_in(other)
    with pytest.raises(BackupError, match="set that data aside with --force"):
        restore_backup(backup, other)
    assert files_in(other) == before


def test_restore_into_the_directory_of_a_running_server_is_refused(
    backup: Path, tmp_path: Path
) -> None:
    with Embedded(tmp_path / "data", port=0), pytest.raises(DataDirBusy):
        restore_backup(backup, tmp_path / "data", force=True)


@pytest.mark.parametrize("part", ["start", "middle", "checksum", "manifest", "footer"])
def test_damaged_backup_changes_nothing(backup: Path, other: Path, part: str) -> None:
    size = backup.stat().st_size
    found = check_backup(backup).manifest
    assert found is not None
    rdb = found.rdb_bytes
    place = {
        "start": 9,
        "middle": rdb // 2,
        "checksum": rdb - 1,
        "manifest": rdb + 20,
        "footer": size - 1,
    }[part]
    damaged, before = changed(backup, other.parent / "damaged.rdb", place), files_in(other)
    with pytest.raises(BackupError):
        check_backup(damaged)
    with pytest.raises(BackupError):
        restore_backup(damaged, other, force=True)
    assert files_in(other) == before


@pytest.mark.parametrize("lost", [1, 24, 400, 2000])
def test_backup_that_breaks_off_is_refused(backup: Path, tmp_path: Path, lost: int) -> None:
    short = tmp_path / "short.rdb"
    short.write_bytes(backup.read_bytes()[:-lost])
    with pytest.raises(BackupError):
        restore_backup(short, tmp_path / "new")
    assert not files_in(tmp_path / "new")


def test_rdb_file_of_another_tool_is_restored(backup: Path, tmp_path: Path) -> None:
    found = check_backup(backup).manifest
    assert found is not None
    plain = tmp_path / "dump.rdb"
    plain.write_bytes(backup.read_bytes()[: found.rdb_bytes])
    assert check_backup(plain).manifest is None
    restore_backup(plain, tmp_path / "new")
    assert len(bodies(tmp_path / "new")) == MESSAGES


def test_check_changes_nothing(backup: Path, tmp_path: Path) -> None:
    before = backup.read_bytes()
    assert check_backup(backup).contents.protocols["rsmq"].messages == MESSAGES
    assert backup.read_bytes() == before
    assert names_in(tmp_path) == []


def test_full_disk_leaves_the_old_data(backup: Path, other: Path) -> None:
    before = files_in(other)
    done = subprocess.run(
        [sys.executable, "-c", SMALL_FILES, backup, other],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cannot restore" in done.stdout, done
    assert files_in(other) == before


def test_backup_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="No such file"):
        restore_backup(tmp_path / "nothing.rdb", tmp_path / "new")
    assert not (tmp_path / "new").exists()
