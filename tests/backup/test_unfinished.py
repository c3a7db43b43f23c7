from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tambomq.backup.unfinished import NAME, UnfinishedFile
from tambomq.errors import BackupError
from tests.backup.filled import names_in


def written(target: Path, text: bytes = b"data") -> UnfinishedFile:
    draft = UnfinishedFile(target)
    draft.file.write(text)
    return draft


def test_published_file_has_the_name_and_nothing_else_is_left(tmp_path: Path) -> None:
    with written(tmp_path / "a") as draft:
        assert names_in(tmp_path) == [NAME]
        draft.publish(force=False)
    assert names_in(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"data"


def test_unpublished_file_is_removed(tmp_path: Path) -> None:
    with written(tmp_path / "a"):
        pass
    assert names_in(tmp_path) == []


def test_two_writers_do_not_share_a_folder(tmp_path: Path) -> None:
    with written(tmp_path / "a"), pytest.raises(BackupError, match="another backup"):
        UnfinishedFile(tmp_path / "b")


def test_file_of_a_killed_writer_is_replaced(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("half")
    with written(tmp_path / "a") as draft:
        draft.publish(force=False)
    assert names_in(tmp_path) == ["a"]


def test_backup_of_a_writer_killed_while_publishing_is_not_overwritten(tmp_path: Path) -> None:
    """It was linked to its name, and the other name was still there."""
    (tmp_path / NAME).write_text("complete")
    (tmp_path / "a").hardlink_to(tmp_path / NAME)
    with written(tmp_path / "b") as draft:
        draft.publish(force=False)
    assert (tmp_path / "a").read_text() == "complete"


def test_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    with written(tmp_path / "a") as draft:
        (tmp_path / "a").write_text("precious")
        with pytest.raises(BackupError, match="exists"):
            draft.publish(force=False)
    assert (tmp_path / "a").read_text() == "precious"


def test_file_system_without_hard_links_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "not here")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    with written(tmp_path / "a") as draft:
        draft.publish(force=False)
    assert names_in(tmp_path) == ["a"]
