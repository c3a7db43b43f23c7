"""A component beyond loopback needs TLS and authentication, or ``--insecure``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tambomq.errors import SettingsError
from tambomq.serve.exposure import is_loopback, refuse_exposed
from tambomq.settings import load as settings
from tests.serve.processes import tambo

TLS = {"tls_cert": "/cert.pem", "tls_key": "/key.pem"}
CLIENTS = {**TLS, "tls_client_ca": "/ca.pem"}


def load(component: str, **flags: str) -> settings.Settings:
    named = {f"{component}_{key}": value for key, value in flags.items()}
    return settings.load(env={}, flags=named)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "10.1.2.3"])
@pytest.mark.parametrize(
    ("component", "flags"),
    [
        ("gomq", {}),
        ("gomq", {"token": "secret"}),
        ("gomq", TLS),
        ("kqueue", {}),
        ("kqueue", TLS),
        ("http", {}),
        ("http", {"token": "secret"}),
        ("http", TLS),
    ],
)
def test_an_exposed_component_without_authentication_is_refused(
    component: str, flags: dict[str, str], host: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        refuse_exposed(load(component, host=host, **flags))
    message = str(caught.value)
    assert f"--{component}-host {host} is beyond loopback" in message
    assert "--insecure" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("component", "flags"),
    [
        ("gomq", {**TLS, "token": "secret"}),
        ("gomq", CLIENTS),
        ("kqueue", CLIENTS),
        ("http", {**TLS, "token": "secret"}),
        ("http", {**TLS, "viewer_token": "secret"}),
    ],
)
def test_a_protected_component_may_listen_anywhere(component: str, flags: dict[str, str]) -> None:
    refuse_exposed(load(component, host="0.0.0.0", **flags))


@pytest.mark.parametrize("component", ["gomq", "kqueue", "http"])
def test_insecure_allows_an_exposed_component(component: str) -> None:
    flags = {f"{component}_host": "0.0.0.0", "insecure": True}
    refuse_exposed(settings.load(env={}, flags=flags))


@pytest.mark.parametrize("component", ["gomq", "kqueue", "http"])
def test_a_disabled_component_may_have_any_host(component: str) -> None:
    flags = {f"{component}_host": "0.0.0.0", f"{component}_enabled": False}
    refuse_exposed(settings.load(env={}, flags=flags))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_authentication(host: str) -> None:
    assert is_loopback(host)
    for component in ("gomq", "kqueue", "http"):
        refuse_exposed(load(component, host=host))


def test_the_command_refuses_before_anything_is_opened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    ran = tambo("serve", "--data-dir", str(data), "--http-host", "0.0.0.0", cwd=tmp_path)
    assert ran.returncode == 2
    assert "--http-host 0.0.0.0 is beyond loopback" in ran.stderr
    assert not data.exists()
