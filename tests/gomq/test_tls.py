"""TLS between client and server, and client certificates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tambomq.errors import BrokerUnavailable, SettingsError
from tambomq.gomq.client import GomqClient
from tambomq.store.endpoint import Tls
from tambomq.tls import ServerTls
from tests.gomq.fakes import KINDS, FakeService, Served, connected, serving
from tests.servers.tls import Certificate, certificate


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """The server's certificate."""
    return certificate(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A client's certificate."""
    return certificate(tmp_path_factory.mktemp("theirs"))


@contextmanager
def secure(ours: Certificate, **options: Any) -> Iterator[Served]:
    with serving(service=FakeService(), tls=ServerTls(ours.cert, ours.key, **options)) as served:
        yield served


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_client_that_trusts_the_authority_is_served(
    kind: str, host: str, ours: Certificate
) -> None:
    with secure(ours) as served:
        address = f"{host}:{served.server.address[1]}"
        with connected(kind, address, tls=Tls(ca=str(ours.cert))) as client:
            client.publish("orders", "one")
            assert client.observe("c") == []
            assert list(client.watch("c")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_trusts_another_authority_sends_nothing(
    kind: str, ours: Certificate, theirs: Certificate
) -> None:
    with (
        secure(ours) as served,
        connected(kind, served.address, tls=Tls(ca=str(theirs.cert))) as client,
        pytest.raises(BrokerUnavailable),
    ):
        client.publish("orders", "one")


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_with_the_system_authorities_refuses_a_test_certificate(
    kind: str, ours: Certificate
) -> None:
    with (
        secure(ours) as served,
        connected(kind, served.address, tls=Tls()) as client,
        pytest.raises(BrokerUnavailable),
    ):
        client.publish("orders", "one")


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_without_tls_is_not_served(kind: str, ours: Certificate) -> None:
    with (
        secure(ours) as served,
        connected(kind, served.address) as client,
        pytest.raises(BrokerUnavailable),
    ):
        client.publish("orders", "one")


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_client_ca_only_clients_with_a_certificate_are_served(
    kind: str, ours: Certificate, theirs: Certificate
) -> None:
    anonymous = Tls(ca=str(ours.cert))
    stranger = Tls(ca=str(ours.cert), cert=str(ours.cert), key=str(ours.key))
    known = Tls(ca=str(ours.cert), cert=str(theirs.cert), key=str(theirs.key))
    with secure(ours, client_ca=theirs.cert) as served:
        for tls in (anonymous, stranger):
            with (
                connected(kind, served.address, tls=tls) as client,
                pytest.raises(BrokerUnavailable),
            ):
                client.publish("orders", "one")
        with connected(kind, served.address, tls=known) as client:
            client.publish("orders", "one")


def test_a_client_cannot_disable_certificate_checks(ours: Certificate) -> None:
    with pytest.raises(SettingsError, match="verifies every server"):
        GomqClient(tls=Tls(ca=str(ours.cert), verify=False))


def test_the_error_names_the_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for name in ("missing.pem", "empty.pem"):
        for tls in (Tls(ca=str(tmp_path / name)), Tls(cert=str(tmp_path / name))):
            with pytest.raises(SettingsError, match=name):
                GomqClient(tls=tls)
        with (
            pytest.raises(SettingsError, match=name),
            serving(
                service=FakeService(), tls=ServerTls(tmp_path / name, tmp_path / "missing.pem")
            ),
        ):
            pass
