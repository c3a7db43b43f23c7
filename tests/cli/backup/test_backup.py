"""``tambo backup`` and ``tambo restore`` as users run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tambomq.cli.main import tambo
from tambomq.cli.output import run
from tests.backup.filled import MESSAGES, filled


def command(*words: object) -> int:
    return run(tambo, "tambo", list(map(str, words)))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("data"))


def test_backup_and_restore_say_what_they_did(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("backup", tmp_path / "a.rdb", "--data-dir", data) == 0
    out = capsys.readouterr().out
    assert f"{tmp_path}/a.rdb\n" in out
    assert f"1 queue, {MESSAGES} messages" in out
    assert "loaded by a server" in out
    assert command("restore", tmp_path / "a.rdb", "--data-dir", tmp_path / "new") == 0
    assert f"{tmp_path}/new has the data of {tmp_path}/a.rdb\n" in capsys.readouterr().out
    assert command("restore", tmp_path / "a.rdb", "--data-dir", tmp_path / "new", "--force") == 0
    assert "before-restore-" in capsys.readouterr().out


def test_a_directory_that_is_not_there_does_not_become_a_file(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("backup", f"{tmp_path}/elsewhere/", "--data-dir", data) == 3
    assert f"there is no directory {tmp_path}/elsewhere/" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "elsewhere").mkdir()
    assert command("backup", f"{tmp_path}/elsewhere/", "--data-dir", data, "--no-verify") == 0
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_backup_and_restore_print_their_contents_as_json(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("backup", tmp_path, "--data-dir", data, "--json") == 0
    done = json.loads(capsys.readouterr().out)
    assert done["verified"]
    assert Path(done["path"]).stat().st_size == done["bytes"]
    assert command("restore", done["path"], "--check", "--json") == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["contents"] == done["contents"]
    assert checked["data_dir"] is None


def test_a_failed_backup_or_restore_prints_one_line_and_exits_1(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.rdb").write_text("precious")
    for words in (
        ("backup", tmp_path / "a.rdb", "--data-dir", data),
        ("backup", tmp_path / "b.rdb", "--data-dir", tmp_path / "none"),
        ("backup", tmp_path / "none" / "b.rdb", "--data-dir", data),
        ("restore", tmp_path / "a.rdb", "--data-dir", data),
        ("restore", tmp_path / "a.rdb", "--check"),
    ):
        assert command(*words) == 1, words
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1, captured.err


def test_directory_that_is_named_wins_over_the_server_of_the_environment(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAMBO_REDIS_URL", "redis://127.0.0.1:1")
    assert command("backup", tmp_path / "a.rdb", "--data-dir", data, "--no-verify") == 0
    assert command("backup", tmp_path / "b.rdb") == 1


def test_two_servers_are_wrong_usage(data: Path, tmp_path: Path) -> None:
    words = ("--data-dir", data, "--redis-url", "redis://127.0.0.1:1")
    assert command("backup", tmp_path / "a.rdb", *words) == 2


def test_file_that_is_not_there_is_exit_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("restore", tmp_path / "none.rdb", "--check") == 3
    assert "there is no" in capsys.readouterr().err


def test_unverified_backup_says_so(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("backup", tmp_path / "a.rdb", "--data-dir", data, "--no-verify") == 0
    assert "verified  no" in capsys.readouterr().out
