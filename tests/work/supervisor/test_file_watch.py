from __future__ import annotations

from pathlib import Path

from tambomq.work.supervisor.file_watch import FileWatch


def test_a_change_is_found_once(tmp_path: Path) -> None:
    file, other = tmp_path / "a.py", tmp_path / "b.py"
    file.write_text("1")
    watch = FileWatch()
    watch.add([str(file), str(other)])
    assert watch.changed() == []
    file.write_text("22")
    assert watch.changed() == [str(file)]
    assert watch.changed() == []


def test_a_file_may_come_go_and_be_replaced(tmp_path: Path) -> None:
    file, draft = tmp_path / "a.py", tmp_path / "draft"
    watch = FileWatch()
    watch.add([str(file)])
    file.write_text("1")
    assert watch.changed() == [str(file)]
    draft.write_text("2")
    draft.replace(file)
    assert watch.changed() == [str(file)]
    file.unlink()
    watch.add([str(file)])  # known already: how it was is not forgotten
    assert watch.changed() == [str(file)]
