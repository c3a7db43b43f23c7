"""Directories that are lakes, those that are not, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tambomq.errors import SettingsError
from tambomq.pipeline.lake.lake import MARKER, Lake, default_path, is_full


def test_a_lake_is_created_once(tmp_path: Path) -> None:
    made = Lake.make(tmp_path / "a" / "lake")
    assert Lake.make(tmp_path / "a" / "lake").id == made.id
    assert Lake.open(made.path).id == made.id


def test_an_empty_directory_becomes_a_lake(tmp_path: Path) -> None:
    assert Lake.make(tmp_path).log.version().number == 0


def test_a_directory_with_other_files_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all my work")
    with pytest.raises(SettingsError, match="has files and is no lake"):
        Lake.make(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_lake_is_for_its_owner_alone_also_if_it_existed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    data = tmp_path / "tambomq"
    Lake.make(data / "lake")
    for existing in (data, data / "lake"):
        assert existing.stat().st_mode & 0o777 == 0o700
        existing.chmod(0o755)
    Lake.make(data / "lake")
    assert [each.stat().st_mode & 0o777 for each in (data, data / "lake")] == [0o700] * 2


def test_reading_does_not_create_a_lake(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no lake at"):
        Lake.open(tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


def test_a_lake_of_another_version_is_refused(tmp_path: Path) -> None:
    Lake.make(tmp_path)
    marker = json.loads((tmp_path / MARKER).read_text())
    (tmp_path / MARKER).write_text(json.dumps(marker | {"format": 7}))
    with pytest.raises(SettingsError, match="is of format 7, this TamboMQ knows 1"):
        Lake.make(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "barn", "format": 1, "id": "x"}'])
def test_an_invalid_marker_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    with pytest.raises(SettingsError, match=r"lake\.json is not valid"):
        Lake.make(tmp_path)


def test_a_place_where_nothing_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"cannot use .*/file/lake as a lake: not a directory"):
        Lake.make(tmp_path / "file" / "lake")


def test_two_pipelines_do_not_fill_one_lake(lake: Lake) -> None:
    with lake.locked():
        other = Lake.open(lake.path)
        with pytest.raises(SettingsError, match="another pipeline fills"), other.locked():
            pass
    with lake.locked():
        pass


def test_staged_files_of_a_dead_pipeline_are_deleted_by_the_next_one(lake: Lake) -> None:
    (lake.path / "staging" / "dead").mkdir()
    (lake.path / "staging" / "dead" / "part.parquet").write_bytes(b"x")
    with lake.locked():
        assert [*(lake.path / "staging").iterdir()] == []


def test_adopted_files_keep_their_folder_and_other_files_are_deleted(lake: Lake) -> None:
    with lake.staged() as home:
        folder = home / "protocol=rsmq" / "queue=a%2Fb"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [1, 2]}), folder / "part-0.parquet")
        pq.write_table(pa.table({"x": pa.array([], pa.int64())}), folder / "part-1.parquet")
        (home / "_SUCCESS").touch()
        (file,) = lake.adopt("bronze", home)
    assert file.rows == 2
    assert file.path.startswith("bronze/protocol=rsmq/queue=a%2Fb/")
    assert (lake.path / file.path).stat().st_size == file.bytes
    assert [*(lake.path / "staging").iterdir()] == []


def test_a_file_that_is_cut_short_is_not_adopted(lake: Lake) -> None:
    with lake.staged() as home:
        home.mkdir(parents=True)
        (home / "part-0.parquet").write_bytes(b"PAR1")
        with pytest.raises(pa.ArrowInvalid):
            lake.adopt("bronze", home)


def test_the_default_lake_is_in_the_data_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "tambomq" / "lake"


def test_a_full_disk_is_distinguished_from_other_errors() -> None:
    assert is_full(OSError(28, "No space left on device"))
    assert is_full(RuntimeError("java.io.IOException: No space left on device"))
    assert not is_full(OSError(13, "Permission denied"))
