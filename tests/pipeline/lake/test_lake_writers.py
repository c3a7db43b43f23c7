"""Writers of a lake: what counts stays, a number is given once, a long batch keeps its files."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tambomq.errors import LakeError, SettingsError
from tambomq.pipeline.lake import files as lake_files
from tambomq.pipeline.lake.compact import KEPT_MS, compact, vacuum
from tambomq.pipeline.lake.lake import BRONZE, CLOSED, Lake
from tambomq.pipeline.lake.locks import exclusive_lock, shared_lock
from tambomq.pipeline.lake.log import WHOLE_EVERY, LakeFile, LogEntry, TableLog
from tests.pipeline.killed_writers import POINTS

FULL = OSError(errno.ENOSPC, "No space left on device")


def entry(*add: str, at_ms: int = 1, batch: int | None = None) -> LogEntry:
    return LogEntry(
        at_ms=at_ms, by="query", batch=batch, add={BRONZE: [LakeFile(p, 1, 1) for p in add]}
    )


def write(lake: Lake, table: str = CLOSED, *, age_s: float = 0) -> list[LakeFile]:
    """Write a file as a batch does before it commits."""
    with lake.staged() as home:
        home.mkdir(parents=True)
        pq.write_table(pa.table({"x": [1]}), home / "part.parquet")
        then = time.time() - age_s
        os.utime(home / "part.parquet", (then, then))
        return lake.adopt(table, home)


# ── the point of no return ───────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["link", "fsync"])
def test_a_commit_succeeds_if_its_snapshot_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    log, real = TableLog(tmp_path), getattr(os, name)
    for number in range(1, WHOLE_EVERY):
        log.commit(entry(f"f{number}"))
    calls = 0

    def fails(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        # The entry is written, linked and its directory synced before the whole is.
        if calls > {"link": 1, "fsync": 2}[name]:
            raise FULL
        return real(*given)

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(os, name, fails)
        assert log.commit(entry("last")).number == WHOLE_EVERY
    assert "could be written: [Errno 28] No space left" in caplog.text
    assert TableLog(tmp_path).version().number == WHOLE_EVERY
    log.commit(entry("one more"))
    assert [path.name for path in tmp_path.glob("*.whole.json")] == ["000000000021.whole.json"]


def test_an_entry_counts_although_its_directory_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(lake_files, "sync", fails)
    with caplog.at_level(logging.WARNING):
        assert TableLog(tmp_path).commit(entry("a")).number == 1
    assert "may not outlast a power cut: [Errno 5]" in caplog.text


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EIO])
def test_a_link_that_succeeds_with_an_error_is_one_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real = os.link

    def late(*given: Any) -> None:
        real(*given)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", late)
    assert TableLog(tmp_path).commit(entry("a")).number == 1
    assert [*TableLog(tmp_path).entries()] == [entry("a")]


def test_a_writer_interrupted_after_its_commit_deletes_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        lake.log.commit(LogEntry(at_ms=1, by="query", add={CLOSED: write(lake)}))
    real = os.link

    def interrupted(*given: Any) -> None:
        real(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compact(lake)
    vacuum(lake, time.time() + 2 * KEPT_MS / 1000)
    (file,) = Lake.open(lake.path).log.version().of(CLOSED)
    assert pq.ParquetFile(lake.path / file.path).read()["x"].to_pylist() == [1, 1]


def test_only_files_that_no_entry_names_are_discarded(lake: Lake) -> None:
    counted, merged, failed = (write(lake)[0] for _ in range(3))
    lake.log.commit(LogEntry(at_ms=1, by="query", add={CLOSED: [counted, merged]}))
    lake.log.commit(LogEntry(at_ms=1, by="compact", remove={CLOSED: [merged.path]}))
    lake.discard([counted, merged, failed])
    there = {path.relative_to(lake.path).as_posix() for path in lake.path.rglob("*.parquet")}
    assert there == {counted.path, merged.path}


def test_nothing_is_discarded_while_the_log_cannot_be_read(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    (file,) = write(lake)
    (lake.path / "_log" / f"{1:012}.json").write_text("{")
    lake.discard([file])
    assert (lake.path / file.path).exists()
    assert "files of a change that failed are left" in caplog.text


# ── numbers ──────────────────────────────────────────────────────────────────


def test_the_number_of_a_dropped_entry_is_not_used_again(tmp_path: Path) -> None:
    sleeper, others = TableLog(tmp_path), TableLog(tmp_path)
    sleeper.commit(entry("first", batch=1))
    for number in range(2, WHOLE_EVERY + 2):
        others.commit(entry(f"f{number}"))
    assert TableLog(tmp_path).forget_before(10**15) == WHOLE_EVERY
    made = sleeper.commit(entry("mine", batch=2))
    assert made.number == WHOLE_EVERY + 2
    found = TableLog(tmp_path).version()
    assert found == made == sleeper.version()
    assert {"first", "mine"} <= found.files[BRONZE].keys()


def test_entries_are_not_dropped_between_a_commits_look_and_its_link(tmp_path: Path) -> None:
    log, dropped = TableLog(tmp_path), []
    for number in range(WHOLE_EVERY):
        log.commit(entry(f"f{number}"))
    with shared_lock(tmp_path / "lock"):
        dropped.append(TableLog(tmp_path).forget_before(10**15))
    dropped.append(TableLog(tmp_path).forget_before(10**15))
    assert dropped == [0, WHOLE_EVERY]


def test_a_commit_holds_the_lock_when_it_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, real = [], os.link

    def looking(*given: Any) -> None:
        with exclusive_lock(tmp_path / "lock") as is_alone:
            alone.append(is_alone)
        real(*given)

    monkeypatch.setattr(os, "link", looking)
    TableLog(tmp_path).commit(entry("a"))
    assert alone == [False]


def test_a_missing_log_entry_is_an_error(tmp_path: Path) -> None:
    log = TableLog(tmp_path)
    for name in "abc":
        log.commit(entry(name))
    (tmp_path / f"{2:012}.json").unlink()
    with pytest.raises(LakeError, match=r"000000000002\.json is missing and later entries are"):
        TableLog(tmp_path).commit(entry("d"))


def test_a_log_is_read_while_its_entries_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    writer = TableLog(tmp_path)
    for number in range(1, 4 * WHOLE_EVERY):
        reader = TableLog(tmp_path)
        reader.version()
        writer.commit(entry(f"f{number}"))
        writer.forget_before(10**15)
        assert reader.version().number == TableLog(tmp_path).version().number == number
    assert len([*tmp_path.glob("*.whole.json")]) <= 2


def test_drafts_of_killed_writers_are_removed(tmp_path: Path) -> None:
    log = TableLog(tmp_path)
    for number in range(WHOLE_EVERY):
        log.commit(entry(f"f{number}"))
    (tmp_path / ".draft").touch()
    log.forget_before(1)
    assert (tmp_path / ".draft").exists()
    log.forget_before(10**15)
    assert not (tmp_path / ".draft").exists()


# ── writers and deletion ─────────────────────────────────────────────────────


def test_files_of_a_batch_that_takes_longer_than_an_hour_are_kept(lake: Lake) -> None:
    two_hours = time.time() + 2 * KEPT_MS / 1000
    with lake.writing():
        files = write(lake)
        assert vacuum(Lake.open(lake.path), two_hours) == (0, 0)
        lake.log.commit(LogEntry(at_ms=1, by="query", add={CLOSED: files}))
    assert vacuum(lake, two_hours) == (0, 0)
    assert (lake.path / files[0].path).exists()


def test_files_that_a_long_batch_may_still_read_are_kept(lake: Lake) -> None:
    for _ in range(2):
        lake.log.commit(LogEntry(at_ms=1, by="query", add={CLOSED: write(lake)}))
    two_hours = time.time() + 2 * KEPT_MS / 1000
    with lake.writing():
        compact(Lake.open(lake.path))
        assert vacuum(Lake.open(lake.path), two_hours) == (0, 0)
    assert vacuum(lake, two_hours)[0] == 2


def test_files_older_than_the_oldest_live_writer_are_deleted(lake: Lake) -> None:
    write(lake, age_s=3 * KEPT_MS / 1000)
    with lake.writing():
        assert vacuum(Lake.open(lake.path))[0] == 1


def test_a_dead_writer_does_not_protect_old_files(lake: Lake) -> None:
    (lake.path / "writers").mkdir()
    (lake.path / "writers" / "dead").touch()
    write(lake)
    assert vacuum(lake, time.time() + 2 * KEPT_MS / 1000)[0] == 1
    assert [*(lake.path / "writers").iterdir()] == []


def test_a_writer_whose_file_was_removed_before_it_was_locked_registers_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = Path.exists, list[Path]()

    def exists(path: Path, **more: Any) -> bool:
        if path.parent.name == "writers" and not seen:
            path.unlink()
            seen.append(path)
        return real(path, **more)

    monkeypatch.setattr(Path, "exists", exists)
    with lake.writing():
        assert len([*(lake.path / "writers").iterdir()]) == 1
        assert lake.writing_since_ms() is not None
    assert seen
    assert lake.writing_since_ms() is None


def test_a_file_system_without_locks_is_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(SettingsError, match="does not support file locks"):
        lake.log.commit(entry("a"))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["batch", "compact"])
def test_a_writer_that_is_really_killed_at_any_call_leaves_a_lake_that_is_whole(
    tmp_path: Path, what: str
) -> None:
    words = [sys.executable, "-m", "tests.pipeline.killed_writers", what, str(tmp_path)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > POINTS[what]
