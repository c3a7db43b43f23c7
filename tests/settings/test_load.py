from __future__ import annotations

import sys
import tomllib
from inspect import signature
from pathlib import Path

import pytest

from tambomq.access.directory import NO_ACCESS
from tambomq.errors import SettingsError
from tambomq.gomq.model import Options
from tambomq.gomq.server.grpc_server import GomqServer
from tambomq.journal.policy import JournalBounds
from tambomq.kqueue.frames import Limits
from tambomq.kqueue.server import KqueueServer
from tambomq.settings import load as settings
from tambomq.store.endpoint import URL

ROOT = Path(__file__).parents[2]


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
    loaded = settings.load(env=env, flags={"redis_port": "3", "redis_url": None})
    assert (loaded.server.redis_port, loaded.server.redis_url) == (3, "redis://env")
    assert loaded.log.level == "error"


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
        ("[x]", "no section [x]; there are server, rsmq, "),
        ("server = 1", "no section [server]"),
        ("redis_port = ", "tambo.toml: is not TOML"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(config(text), env={})
    assert complaint in str(caught.value)


def test_a_given_config_file_must_exist() -> None:
    with pytest.raises(SettingsError, match=r"^none\.toml: cannot be read: No such file"):
        settings.load(Path("none.toml"), env={})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("TAMBO_REDIS_PORT", "65536", "TAMBO_REDIS_PORT: expected a port from 0 to 65535, not"),
        ("TAMBO_LOG_LEVEL", "loud", "TAMBO_LOG_LEVEL: expected debug, info, warning or error"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(env={name: value})
    assert complaint in str(caught.value)


def test_variables_of_the_tests_and_of_others_are_not_settings() -> None:
    env = {"TAMBO_TEST_REDIS8": "x", "PATH": "y", "TAMBO_LAKE": "lake"}
    assert settings.load(env=env) == settings.Settings()
    assert settings.unknown_variables(env) == []


def test_an_unknown_variable_is_ignored_with_a_warning() -> None:
    env = {"TAMBO_REDIS_PRT": "1", "TAMBO_GOMQ_PORT": "2", "TAMBO_XYZZY": "3"}
    assert settings.load(env=env).gomq.port == 2
    assert settings.unknown_variables(env) == [
        "TAMBO_REDIS_PRT: no such variable, it is ignored; did you mean TAMBO_REDIS_PORT?",
        "TAMBO_XYZZY: no such variable, it is ignored",
    ]


@pytest.mark.parametrize("service", ["TAMBO", "TAMBO_REDIS", "TAMBO_GOMQ", "TAMBO_A_B"])
def test_the_service_variables_of_kubernetes_are_not_settings(service: str) -> None:
    env = {
        f"{service}_SERVICE_HOST": "10.0.0.11",
        f"{service}_SERVICE_PORT": "6379",
        f"{service}_SERVICE_PORT_REDIS": "6379",
        f"{service}_PORT": "tcp://10.0.0.11:6379",
        f"{service}_PORT_6379_TCP": "tcp://10.0.0.11:6379",
        f"{service}_PORT_6379_TCP_PROTO": "tcp",
        f"{service}_PORT_6379_TCP_PORT": "6379",
        f"{service}_PORT_6379_TCP_ADDR": "10.0.0.11",
    }
    assert settings.load(env=env) == settings.Settings()
    assert settings.unknown_variables(env) == []


@pytest.mark.parametrize("url", ["http://h", "redis://", "", 5])
def test_a_wrong_flag_is_named_with_the_form_it_wants(url: object) -> None:
    with pytest.raises(SettingsError, match=r"^--redis-url: expected a URL that begins with redis"):
        settings.load(env={}, flags={"redis_url": url})


def test_errors_do_not_contain_the_password() -> None:
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


# ── each kind of value, from each source ─────────────────────────────────────


def test_a_file_sets_every_component() -> None:
    loaded = settings.load(
        config(
            """
            [rsmq]
            enabled = false
            [chasqui]
            queue = ["emails", "reports, daily"]
            [gomq]
            host = "0.0.0.0"
            transport = "envoy"
            peer_timeout_s = 2.5
            max_message_bytes = "16MiB"
            token = "s3cret"
            tls_cert = "~/gomq.pem"
            [kqueue]
            port = 0
            slow_consumer = "drop"
            max_connections = 7
            max_name_bytes = 128
            ok_replies = true
            [http]
            host = "::1"
            """
        ),
        env={},
    )
    assert loaded.rsmq.enabled is False
    assert loaded.chasqui.queue == ("emails", "reports, daily")
    gomq, kqueue = loaded.gomq, loaded.kqueue
    assert (gomq.host, gomq.transport, gomq.peer_timeout_s) == ("0.0.0.0", "envoy", 2.5)
    assert (gomq.max_message_bytes, gomq.token) == (16 << 20, "s3cret")
    assert gomq.tls_cert == Path("~/gomq.pem").expanduser()
    assert (kqueue.port, kqueue.slow_consumer, kqueue.max_connections) == (0, "drop", 7)
    assert (kqueue.max_name_bytes, kqueue.ok_replies) == (128, True)
    assert (loaded.http.host, loaded.http.port) == ("::1", 8090)


def test_a_variable_sets_switches_sizes_and_names() -> None:
    loaded = settings.load(
        env={
            "TAMBO_GOMQ_ENABLED": "no",
            "TAMBO_HTTP_ENABLED": "1",
            "TAMBO_KQUEUE_OK_REPLIES": "on",
            "TAMBO_KQUEUE_MAX_BUFFER_BYTES": "64KiB",
            "TAMBO_KQUEUE_HANDSHAKE_S": "0.5",
            "TAMBO_CHASQUI_QUEUE": "emails, reports",
        }
    )
    assert (loaded.gomq.enabled, loaded.http.enabled, loaded.kqueue.ok_replies) == (
        False,
        True,
        True,
    )
    assert (loaded.kqueue.max_buffer_bytes, loaded.kqueue.handshake_s) == (65536, 0.5)
    assert loaded.chasqui.queue == ("emails", "reports")


def test_a_flag_wins_over_a_list_and_an_absent_one_does_not() -> None:
    env = {"TAMBO_CHASQUI_QUEUE": "emails", "TAMBO_GOMQ_ENABLED": "no"}
    kept = settings.load(env=env, flags={"chasqui_queue": (), "gomq_enabled": None})
    assert (kept.chasqui.queue, kept.gomq.enabled) == (("emails",), False)
    won = settings.load(env=env, flags={"chasqui_queue": ("a", "b"), "gomq_enabled": True})
    assert (won.chasqui.queue, won.gomq.enabled) == (("a", "b"), True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[gomq]\nenabled = 1", "enabled in [gomq]: expected true or false, not 1"),
        ("[gomq]\nmax_message_bytes = '64KB'", "expected a number of bytes such as 65536, 64KiB"),
        ("[gomq]\nmax_message_bytes = 5", "from 64KiB to 2147483647, not 5"),
        ("[gomq]\npeer_timeout_s = 0", "expected a number of seconds, above 0 and up to 86400"),
        ("[gomq]\nhost = 'http://h'", "expected a host name or address, not 'http://h'"),
        ("[kqueue]\nslow_consumer = 'kill'", "expected disconnect, drop or block, not 'kill'"),
        ("[kqueue]\nmax_connections = 0", "expected a whole number from 1 to 1000000, not 0"),
        ("[kqueue]\nok_reply = true", "no key ok_reply in [kqueue]; did you mean ok_replies?"),
        ("[chasqui]\nqueue = 'a,,b'", "queue in [chasqui]: expected names, not 'a,,b'"),
        ("[http]\nport = 70000", "port in [http]: expected a port from 0 to 65535, not 70000"),
    ],
)
def test_a_wrong_value_of_a_component_is_named(text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(config(text), env={})
    assert complaint in str(caught.value)


@pytest.mark.parametrize("how", ["file", "variable", "flag"])
def test_a_token_is_never_shown(how: str) -> None:
    wrong = "s3cret with spaces"
    text = f"[gomq]\ntoken = '{wrong}'" if how == "file" else ""
    env = {"TAMBO_GOMQ_TOKEN": wrong} if how == "variable" else {}
    flags = {"gomq_token": wrong} if how == "flag" else {}
    with pytest.raises(SettingsError, match=r"token of visible ASCII characters$") as caught:
        settings.load(config(text), env=env, flags=flags)
    assert "s3cret" not in repr(caught.value)
    assert "s3cret" not in repr(settings.load(config(""), env={"TAMBO_GOMQ_TOKEN": "s3cret"}))
    assert "s3cret" not in settings.example_toml()


def test_every_switch_has_a_flag_for_both_directions() -> None:
    flags = {spec.name: (spec.flag, spec.spellings) for spec in settings.specs()}
    assert flags["gomq_enabled"] == ("--no-gomq", ("--gomq/--no-gomq",))
    assert flags["kqueue_ok_replies"] == (
        "--kqueue-ok-replies",
        ("--kqueue-ok-replies/--no-kqueue-ok-replies", "--ok-replies"),
    )
    assert flags["gomq_port"] == ("--gomq-port", ("--gomq-port",))


def test_servers_have_the_defaults_of_their_settings() -> None:
    loaded = settings.Settings()
    kqueue = {name: p.default for name, p in signature(KqueueServer).parameters.items()}
    limits = Limits()
    assert {
        "host": loaded.kqueue.host,
        "port": loaded.kqueue.port,
        "slow": loaded.kqueue.slow_consumer,
        "max_buffer_bytes": loaded.kqueue.max_buffer_bytes,
        "max_connections": loaded.kqueue.max_connections,
        "handshake_s": loaded.kqueue.handshake_s,
        "frame_s": loaded.kqueue.frame_s,
        "max_memory_bytes": loaded.kqueue.max_memory_bytes,
        "ok_replies": loaded.kqueue.ok_replies,
        "limits": limits,
        "tls": None,
        "journal": loaded.journal.patterns,
        "journal_bounds": JournalBounds(loaded.journal.max_entries, loaded.journal.max_bytes),
        "journal_durable": loaded.kqueue.journal_durable,
        "url": URL,
        "access": NO_ACCESS,
    } == kqueue
    assert limits.name_bytes == loaded.kqueue.max_name_bytes
    assert limits.message_bytes == loaded.kqueue.max_message_bytes
    gomq = {name: p.default for name, p in signature(GomqServer).parameters.items()}
    assert (gomq["host"], gomq["port"]) == (loaded.gomq.host, loaded.gomq.port)
    assert gomq["token"] is loaded.gomq.token is None
    options = Options()
    assert options.peer_timeout_s == loaded.gomq.peer_timeout_s
    assert options.max_message_bytes == loaded.gomq.max_message_bytes
    assert (options.journal, options.journal_bounds) == (
        kqueue["journal"],
        kqueue["journal_bounds"],
    )
