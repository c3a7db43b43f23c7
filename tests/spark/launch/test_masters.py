"""Invalid or unreachable masters fail at once, with a one-line error."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from tambomq.errors import SettingsError
from tambomq.spark import session
from tambomq.spark.launch import masters


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that is bound, so that no other process takes it, but not listened on."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def used_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("master", "local", "here", "remote"),
    [
        ("local", True, True, False),
        ("local[*]", True, True, False),
        ("local[2,3]", True, True, False),
        ("local-cluster[2,1,1024]", False, True, False),
        ("spark://localhost:7077", False, False, False),
        ("yarn", False, False, False),
        ("sc://localhost", False, False, True),
    ],
)
def test_masters_are_distinguished(master: str, local: bool, here: bool, remote: bool) -> None:
    masters.check(master)
    assert masters.is_local(master) is local
    assert masters.is_here(master) is here
    assert masters.is_remote(master) is remote


@pytest.mark.parametrize(
    "master",
    [
        *("", "locale", "local[]", "host:7077", "local-cluster", "spark://", "sc://", "ufo://a:1"),
        *("spark://host", "spark://host:0", "spark://host:70770", "spark://a:1,b", "sc://:1"),
        *("spark://a b:1", "sc://host:port", "spark://::1:7077"),
    ],
)
def test_an_invalid_master_is_refused_in_one_line(master: str) -> None:
    with pytest.raises(SettingsError, match="master must be") as caught:
        session(master=master)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["spark://127.0.0.1:{}", "sc://127.0.0.1:{}/;token=hush"])
def test_an_unreachable_master_is_reported_at_once(form: str, free_port: int) -> None:
    with pytest.raises(SettingsError, match=rf"127.0.0.1:{free_port} cannot be reached") as caught:
        masters.reach(form.format(free_port), {})
    assert "hush" not in str(caught.value)


def test_one_master_of_several_is_enough(free_port: int, used_port: int) -> None:
    masters.reach(f"spark://127.0.0.1:{free_port},127.0.0.1:{used_port}", {})
    with pytest.raises(SettingsError, match=r"(?s)cannot be reached.*; .*cannot be reached"):
        masters.reach(f"spark://127.0.0.1:{free_port},127.0.0.1:{free_port}", {})


def test_a_name_that_does_not_resolve_is_reported() -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.invalid:7077 cannot be reached"):
        masters.reach("spark://nowhere.invalid:7077", {})


def test_yarn_wants_its_settings() -> None:
    with pytest.raises(SettingsError, match="neither HADOOP_CONF_DIR nor YARN_CONF_DIR"):
        masters.reach("yarn", {"YARN_CONF_DIR": ""})
    masters.reach("yarn", {"YARN_CONF_DIR": "/etc/hadoop"})


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]", "k8s://https://host"])
def test_masters_that_only_spark_can_resolve_are_not_checked(master: str) -> None:
    masters.reach(master, {})


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("sc://host", "host:15002"),
        ("sc://host:443/;use_ssl=true;token=hush", "host:443"),
        ("sc://[::1]:1", "[::1]:1"),
    ],
)
def test_a_server_of_spark_connect_has_a_host_and_a_port(url: str, endpoint: str) -> None:
    assert masters.endpoint(url) == endpoint


def test_the_environment_names_a_server_of_spark_connect(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tambomq.spark.launch.session._is_running", lambda: False)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setenv("SPARK_REMOTE", f"sc://127.0.0.1:{free_port}")
    with pytest.raises(SettingsError, match="no Spark Connect server"):
        session()
    monkeypatch.delenv("SPARK_REMOTE")
    with pytest.raises(SettingsError, match="no Spark Connect server"):
        session(conf={"spark.remote": f"sc://127.0.0.1:{free_port}"})
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ
