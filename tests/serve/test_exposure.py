"""A door beyond loopback needs a lock, or somebody who says that it is meant to have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tambomq import settings
from tambomq.errors import SettingsError
from tambomq.serve.exposure import is_loopback, refuse_exposed
from tests.serve.processes import tambo

TLS = {"tls_cert": "/cert.pem", "tls_key": "/key.pem"}
CLIENTS = {**TLS, "tls_client_ca": "/ca.pem"}


def load(door: str, **told: str) -> settings.Settings:
    flags = {f"{door}_{key}": value for key, value in told.items()}
    return settings.load(env={}, flags=flags)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "10.1.2.3"])
@pytest.mark.parametrize(
    ("door", "told"),
    [
        ("gomq", {}),
        ("gomq", {"token": "secret"}),
        ("gomq", TLS),
        ("kqueue", {}),
        ("kqueue", TLS),
        ("http", {}),
    ],
)
def test_a_door_that_strangers_could_use_is_refused(
    door: str, told: dict[str, str], host: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        refuse_exposed(load(door, host=host, **told))
    said = str(caught.value)
    assert f"--{door}-host {host} is beyond loopback" in said
    assert "--insecure" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("door", "told"),
    [("gomq", {**TLS, "token": "secret"}), ("gomq", CLIENTS), ("kqueue", CLIENTS)],
)
def test_a_door_with_a_lock_may_be_anywhere(door: str, told: dict[str, str]) -> None:
    refuse_exposed(load(door, host="0.0.0.0", **told))


@pytest.mark.parametrize("door", ["gomq", "kqueue", "http"])
def test_who_means_it_says_insecure(door: str) -> None:
    told = {f"{door}_host": "0.0.0.0", "insecure": True}
    refuse_exposed(settings.load(env={}, flags=told))


@pytest.mark.parametrize("door", ["gomq", "kqueue", "http"])
def test_a_door_that_is_not_opened_may_say_what_it_likes(door: str) -> None:
    told = {f"{door}_host": "0.0.0.0", f"{door}_enabled": False}
    refuse_exposed(settings.load(env={}, flags=told))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_lock(host: str) -> None:
    assert is_loopback(host)
    for door in ("gomq", "kqueue", "http"):
        refuse_exposed(load(door, host=host))


def test_the_command_refuses_before_anything_is_opened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    ran = tambo("serve", "--data-dir", str(data), "--http-host", "0.0.0.0", cwd=tmp_path)
    assert ran.returncode == 2
    assert "--http-host 0.0.0.0 is beyond loopback" in ran.stderr
    assert not data.exists()
