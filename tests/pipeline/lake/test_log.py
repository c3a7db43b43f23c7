"""The log of a lake: entries are written completely or not at all, with any number of writers."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tambomq.errors import LakeConflict, SettingsError
from tambomq.pipeline.lake.log import WHOLE_EVERY, LakeFile, LogEntry, TableLog

TABLE = "bronze"


def entry(*add: str, remove: tuple[str, ...] = (), **more: Any) -> LogEntry:
    files = [LakeFile(path, 1, 10) for path in add]
    found: dict[str, Any] = {"at_ms": 1, "by": "query"} | more
    return LogEntry(add={TABLE: files}, remove={TABLE: [*remove]} if remove else {}, **found)


def paths(log: TableLog) -> set[str]:
    return {file.path for file in log.version().of(TABLE)}


def test_a_version_has_what_was_added_and_not_removed(tmp_path: Path) -> None:
    log = TableLog(tmp_path)
    log.commit(entry("a", "b"))
    assert log.version().bytes == 20
    log.commit(entry("c", remove=("a",)))
    assert paths(log) == paths(TableLog(tmp_path)) == {"b", "c"}
    assert log.version().number == 2


def test_a_new_log_has_nothing(tmp_path: Path) -> None:
    assert TableLog(tmp_path / "nowhere").version().files == {}


def test_the_last_batch_of_each_query_and_where_it_ended_is_known(tmp_path: Path) -> None:
    log = TableLog(tmp_path)
    log.commit(entry("a", by="one", batch=0, offset={"q": "1-0"}, facts={"x": 1, "y": 1}))
    log.commit(entry("b", by="one", batch=1, offset={"q": "2-0"}, facts={"x": 2}))
    log.commit(entry("c", by="compact"))
    version = TableLog(tmp_path).version()
    assert version.batches == {"one": 1}
    assert version.offset == {"q": "2-0"}
    assert version.facts == {"x": 2, "y": 1}


def test_removing_a_file_that_is_already_removed_is_a_conflict(tmp_path: Path) -> None:
    first, second = TableLog(tmp_path), TableLog(tmp_path)
    first.commit(entry("a"))
    first.commit(entry("b", remove=("a",)))
    with pytest.raises(LakeConflict, match="removed from the lake"):
        second.commit(entry("c", remove=("a",)))
    assert paths(second) == {"b"}


def test_writers_at_the_same_time_all_get_their_turn(tmp_path: Path) -> None:
    def write(name: int) -> None:
        log = TableLog(tmp_path)
        for place in range(20):
            log.commit(entry(f"{name}-{place}"))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = TableLog(tmp_path)
    assert len(paths(log)) == log.version().number == 80


def test_old_log_entries_can_be_dropped_once_a_snapshot_includes_them(tmp_path: Path) -> None:
    log = TableLog(tmp_path)
    for place in range(WHOLE_EVERY + 3):
        log.commit(entry(f"f{place}", at_ms=place))
    assert log.forget_before(10) == 10
    assert log.forget_before(10_000) == WHOLE_EVERY - 10
    assert len(paths(TableLog(tmp_path))) == WHOLE_EVERY + 3
    log.commit(entry("last"))
    assert TableLog(tmp_path).version().number == WHOLE_EVERY + 4


def test_entries_that_no_snapshot_includes_are_kept(tmp_path: Path) -> None:
    log = TableLog(tmp_path)
    log.commit(entry("a"))
    assert log.forget_before(10) == 0
    assert paths(TableLog(tmp_path)) == {"a"}


def test_an_entry_of_another_format_is_refused(tmp_path: Path) -> None:
    TableLog(tmp_path).commit(entry("a", format=9))
    with pytest.raises(SettingsError, match="has format 9, this TamboMQ reads 1"):
        TableLog(tmp_path).version()


def test_the_error_for_an_invalid_entry_names_its_file(tmp_path: Path) -> None:
    (tmp_path / f"{1:012}.json").write_text("{")
    with pytest.raises(SettingsError, match=r"000000000001\.json cannot be read"):
        TableLog(tmp_path).version()


def test_a_log_without_hard_links_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(SettingsError, match="does not support hard links"):
        TableLog(tmp_path).commit(entry("a"))
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_writer_killed_before_the_link_leaves_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", die)
        with pytest.raises(KeyboardInterrupt):
            TableLog(tmp_path).commit(entry("a"))
    assert TableLog(tmp_path).version().number == 0
