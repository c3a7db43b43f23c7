from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tambomq.backup import appendonly
from tests.backup.filled import opened

OLD = ("appendonly.aof.3.base.rdb", "appendonly.aof.7.incr.aof", "appendonly.aof.8.incr.aof")
KILLED = """
import os, signal, sys
from pathlib import Path
from tambomq.backup import appendonly

left = 0

def count(event, args):
    global left
    if event in ("open", "os.rename", "os.link", "os.remove", "os.mkdir"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

for number, path in enumerate(sys.argv[1:]):
    if os.fork() == 0:
        left = number
        sys.addaudithook(count)
        appendonly.replace(Path(path))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def data_dir(path: Path) -> Path:
    """A directory with the append-only files of a server, and a draft to replace them with."""
    folder = path / appendonly.FOLDER
    folder.mkdir(parents=True)
    kinds = ("b", "i", "i")
    for name in OLD:
        (folder / name).write_text(f"old {name}")
    lines = [
        f"file {name} seq {name.split('.')[2]} type {kind}\n"
        for name, kind in zip(OLD, kinds, strict=True)
    ]
    (folder / "appendonly.aof.manifest").write_text("".join(lines))
    appendonly.draft(path).write_text("new")
    return path


def loaded(path: Path) -> list[str]:
    """What a server would load."""
    folder = path / appendonly.FOLDER
    lines = (folder / "appendonly.aof.manifest").read_text().splitlines()
    return [(folder / line.split()[1]).read_text() for line in lines]


def test_new_data_replaces_the_old_which_is_kept_aside(tmp_path: Path) -> None:
    path = data_dir(tmp_path / "data")
    aside = appendonly.replace(path)
    assert aside is not None
    assert loaded(path) == ["new", ""]
    assert loaded(aside) == [f"old {name}" for name in OLD]
    names = {file.name for file in (path / appendonly.FOLDER).iterdir()}
    assert names == {
        "appendonly.aof.9.base.rdb",
        "appendonly.aof.9.incr.aof",
        "appendonly.aof.manifest",
    }


def test_killed_anywhere_it_leaves_the_old_data_or_the_new(tmp_path: Path) -> None:
    paths = [data_dir(tmp_path / str(number)) for number in range(60)]
    words = [sys.executable, "-c", KILLED, *map(str, paths)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    codes = [int(line) for line in done.stdout.split()]
    moments = codes.index(0)
    assert moments > 10
    assert set(codes[:moments]) == {-signal.SIGKILL}
    old, new = tuple(f"old {name}" for name in OLD), ("new", "")
    found = [tuple(loaded(path)) for path in paths[: moments + 1]]
    assert set(found) == {old, new}
    assert found == sorted(found, key=lambda each: each == new)


def test_two_replacements_in_a_second_are_set_aside_apart(tmp_path: Path) -> None:
    path = data_dir(tmp_path / "data")
    asides = []
    for _ in range(3):
        appendonly.draft(path).write_text("new")
        asides.append(appendonly.replace(path))
    assert len(set(asides)) == 3


def test_commands_that_a_killed_restore_left_are_never_replayed(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with opened(path) as client:
        client.set("name", "value")
    folder = path / appendonly.FOLDER
    stale = (folder / "appendonly.aof.1.incr.aof").read_bytes()
    (folder / "appendonly.aof.2.incr.aof").write_bytes(stale)
    appendonly.draft(path).write_bytes((folder / "appendonly.aof.1.base.rdb").read_bytes())
    appendonly.replace(path)
    for _ in range(2):
        with opened(path) as client:
            assert client.get("name") is None


def test_commands_that_no_manifest_names_are_set_aside_too(tmp_path: Path) -> None:
    path = data_dir(tmp_path / "data")
    (path / appendonly.FOLDER / "appendonly.aof.manifest").unlink()
    assert not appendonly.has_data(path)
    assert appendonly.has_files(path)
    aside = appendonly.replace(path)
    assert aside is not None
    assert [(aside / appendonly.FOLDER / name).read_text() for name in OLD] == [
        f"old {name}" for name in OLD
    ]
    assert loaded(path) == ["new", ""]


def test_what_a_killed_restore_has_left_in_a_new_directory_is_no_data(tmp_path: Path) -> None:
    folder = tmp_path / appendonly.FOLDER
    folder.mkdir()
    (folder / appendonly.base_name(1)).write_text("new")
    (folder / "appendonly.aof.1.incr.aof").touch()
    assert not appendonly.has_files(tmp_path)


def test_old_files_that_cannot_be_removed_do_not_fail_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data_dir(tmp_path / "data")

    def refuse(_: Path, missing_ok: bool = False) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", refuse)
    assert appendonly.replace(path) is not None
    assert loaded(path) == ["new", ""]


def test_what_is_set_aside_is_on_the_disk_before_the_old_data_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = data_dir(tmp_path / "data"), set[int]()
    before: list[set[int]] = []

    def no_link(_: Path, source: Path) -> None:
        raise OSError(errno.EPERM, f"no hard links to {source}")

    def remove(_: Path, missing_ok: bool = False) -> None:
        before.append(set(synced))

    monkeypatch.setattr(Path, "hardlink_to", no_link)
    monkeypatch.setattr(Path, "unlink", remove)
    monkeypatch.setattr(os, "fsync", lambda file: synced.add(os.fstat(file).st_ino))
    aside = appendonly.replace(path)
    assert aside is not None
    folder = aside / appendonly.FOLDER
    kept = (path, aside, folder, *(folder / name for name in OLD))
    assert {each.stat().st_ino for each in kept} <= before[0]


@pytest.mark.parametrize("name", ["appendonlydir", "appendonlydir/appendonly.aof.1.base.rdb"])
def test_directory_without_a_manifest_has_no_data(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    assert not appendonly.has_data(tmp_path)
