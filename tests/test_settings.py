from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tambomq import settings
from tambomq.errors import SettingsError

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without a tambo.toml."""
    monkeypatch.chdir(tmp_path)


def config(text: str) -> Path:
    path = Path(settings.CONFIG_FILE)
    path.write_text(text, "utf-8")
    return path


def test_without_any_source_the_defaults_hold() -> None:
    assert settings.load(env={}) == settings.Settings()
    assert settings.load(env={}).server.redis_port == 6379


def test_a_later_source_wins() -> None:
    config("[server]\nredis_port = 1\nredis_url = 'redis://file'\n[log]\nlevel = 'error'\n")
    env = {"TAMBO_REDIS_PORT": "2", "TAMBO_REDIS_URL": "redis://env"}
    told = settings.load(env=env, flags={"redis_port": "3", "redis_url": None})
    assert (told.server.redis_port, told.server.redis_url) == (3, "redis://env")
    assert told.log.level == "error"


def test_the_process_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMBO_LOG_FORMAT", "JSON")
    assert settings.load().log.format == "json"


def test_a_given_file_is_read_instead_of_the_one_that_lies_here(tmp_path: Path) -> None:
    config("[server]\nredis_port = 1\n")
    other = tmp_path / "other.toml"
    other.write_text("[server]\nredis_port = 2\n")
    assert settings.load(other, env={}).server.redis_port == 2


def test_an_empty_variable_is_not_set() -> None:
    assert settings.load(env={"TAMBO_REDIS_URL": ""}).server.redis_url is None


def test_a_directory_may_begin_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/ana")
    assert settings.load(env={"TAMBO_DATA_DIR": "~/q"}).server.data_dir == Path("/ana/q")


def test_data_goes_to_the_data_home_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/ana")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert settings.default_data_dir() == Path("/ana/.local/share/tambomq")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert settings.default_data_dir() == Path("/ana/Library/Application Support/tambomq")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert settings.default_data_dir() == Path("/data/tambomq")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[server]\nredis_port = 'x'", "tambo.toml: redis_port in [server]: expected a port"),
        ("[server]\nredis_port = true", "expected a port from 0 to 65535, not True"),
        ("[server]\nredis_prot = 1", "no key redis_prot in [server]; did you mean redis_port?"),
        ("[sever]\nredis_port = 1", "no section [sever]; did you mean server?"),
        ("[queues]", "no section [queues]; there are server, log"),
        ("server = 1", "no section [server]"),
        ("redis_port = ", "tambo.toml: is not TOML"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(config(text), env={})
    assert complaint in str(caught.value)


def test_a_file_that_was_asked_for_must_be_there() -> None:
    with pytest.raises(SettingsError, match=r"^none\.toml: cannot be read: No such file"):
        settings.load(Path("none.toml"), env={})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("TAMBO_REDIS_PRT", "1", "TAMBO_REDIS_PRT: no such variable; did you mean TAMBO_REDIS_P"),
        ("TAMBO_REDIS_PORT", "65536", "TAMBO_REDIS_PORT: expected a port from 0 to 65535, not"),
        ("TAMBO_LOG_LEVEL", "loud", "TAMBO_LOG_LEVEL: expected debug, info, warning or error"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(env={name: value})
    assert complaint in str(caught.value)


def test_variables_of_the_tests_and_of_others_are_not_settings() -> None:
    assert settings.load(env={"TAMBO_TEST_REDIS8": "x", "PATH": "y"}) == settings.Settings()


@pytest.mark.parametrize("url", ["http://h", "redis://", "", 5])
def test_a_wrong_flag_is_named_with_the_form_it_wants(url: object) -> None:
    with pytest.raises(SettingsError, match=r"^--redis-url: expected a URL that begins with redis"):
        settings.load(env={}, flags={"redis_url": url})


def test_a_complaint_does_not_tell_the_password() -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(env={"TAMBO_REDIS_URL": "http://ana:s3cret@h"})
    assert "s3cret" not in str(caught.value)


def test_every_setting_has_names_of_its_own() -> None:
    names = [spec.name for spec in settings.specs()]
    assert len(names) == len(set(names))


def test_the_example_file_is_what_the_settings_render() -> None:
    assert (ROOT / "tambo.example.toml").read_text("utf-8") == settings.example_toml()


def test_the_example_file_uncommented_is_accepted() -> None:
    lines = settings.example_toml().splitlines()
    keys = {f"# {spec.key} = " for spec in settings.specs()}
    text = "\n".join(line[2:] if line.startswith(tuple(keys)) else line for line in lines)
    assert sum(map(len, tomllib.loads(text).values())) == len(list(settings.specs()))
    settings.load(config(text), env={})
