"""Paths and URLs of a lake: which directory they mean, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tambomq.cli.main import PROG, tambo
from tambomq.cli.output import OK, USAGE, run
from tambomq.errors import SettingsError
from tambomq.pipeline.lake.lake import Lake
from tambomq.pipeline.lake.path import lake_path

REMOTE = (
    "s3a://bucket/lake",
    "s3a:/bucket/lake",
    "hdfs:///lake",
    "HTTPS://host/lake",
    "abfss://c@a/x",
)
COMMANDS = {
    "run": ("run", "--once", "--lake"),
    "compact": ("compact", "--lake"),
    "report": ("report", "--lake"),
    "sql": ("sql", "SELECT 1", "--lake"),
    "replay": ("replay", "--to", "rsmq:again", "--from"),
}


@pytest.mark.parametrize("url", ["file:///var/lake", "file:/var/lake", "FILE://localhost/var/lake"])
def test_a_file_url_is_a_path(url: str) -> None:
    assert lake_path(url) == Path("/var/lake")
    assert lake_path(Path(url)) == Path("/var/lake") or "localhost" in url


def test_a_file_url_may_spell_any_character() -> None:
    assert lake_path("file:///var/a%20lake/100%25") == Path("/var/a lake/100%")


def test_a_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert lake_path("lake") == tmp_path / "lake"
    assert lake_path("a:b/100%25") == tmp_path / "a:b/100%25"
    assert lake_path("~/lake") == tmp_path / "home" / "lake"


@pytest.mark.parametrize("url", [*REMOTE, "file://host/lake", "file:////lake", "file:///a%00b"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="a lake cannot be at"):
        lake_path(url)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_other_schemes_in_one_line(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(tambo, PROG, ["pipeline", *COMMANDS[command], "s3a://bucket/lake"]) == USAGE
    said = capsys.readouterr().err
    assert said.startswith("tambo: a lake cannot be at 's3a://bucket/lake'")
    assert said.count("\n") == 1
    monkeypatch.setenv("TAMBO_LAKE", "gs://bucket/lake")
    assert run(tambo, PROG, ["pipeline", *COMMANDS[command][:-1]]) == USAGE
    assert "'gs'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_commands_take_file_urls(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tambo, PROG, ["pipeline", "compact", "--lake", lake.path.as_uri()]) == OK
    assert "small files" in capsys.readouterr().out


def test_python_takes_the_same_names(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Lake.open(lake.path.as_uri()).id == lake.id
    for refused in (Lake.open, Lake.make):
        with pytest.raises(SettingsError):
            refused("s3a://bucket/lake")
    assert list(tmp_path.iterdir()) in ([], [lake.path])
