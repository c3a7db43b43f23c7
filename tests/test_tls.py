"""Server certificates, and the client certificates that a server accepts."""

from __future__ import annotations

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tambomq.errors import SettingsError
from tambomq.tls import ServerTls
from tests.servers.tls import Certificate, certificate


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """The server's certificate."""
    return certificate(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A client's certificate, which is its own authority."""
    return certificate(tmp_path_factory.mktemp("theirs"))


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    """The bytes that the client receives from the server; raises the error of either."""
    near, far = socket.socketpair()
    near.settimeout(60)
    far.settimeout(60)
    with ThreadPoolExecutor(1) as other, near, far:
        answering = other.submit(_answer, server, far)
        try:
            with client.wrap_socket(near, server_hostname="localhost") as wire:
                heard = wire.recv(100)
        finally:
            near.close()
            error = answering.exception()
        if error:
            raise error
        return heard


def _answer(context: ssl.SSLContext, sock: socket.socket) -> None:
    with context.wrap_socket(sock, server_side=True) as wire:
        wire.sendall(b"hello")


def client_of(ours: Certificate, mine: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ours.cert))
    if mine:
        context.load_cert_chain(mine.cert, mine.key)
    return context


def test_a_client_that_trusts_the_certificate_connects(ours: Certificate) -> None:
    context = ServerTls(ours.cert, ours.key).context()
    assert shake_hands(context, client_of(ours)) == b"hello"


def test_with_a_client_ca_only_clients_with_its_certificates_connect(
    ours: Certificate, theirs: Certificate
) -> None:
    context = ServerTls(ours.cert, ours.key, theirs.cert).context()
    assert shake_hands(context, client_of(ours, theirs)) == b"hello"
    for stranger in (client_of(ours), client_of(ours, ours)):
        with pytest.raises(ssl.SSLError):
            shake_hands(context, stranger)


def test_old_tls_versions_are_refused(ours: Certificate) -> None:
    context = ServerTls(ours.cert, ours.key).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_pems_are_the_files_as_they_are(ours: Certificate, theirs: Certificate) -> None:
    plain, mutual = ServerTls(ours.cert, ours.key), ServerTls(ours.cert, ours.key, theirs.cert)
    assert plain.pems() == (ours.cert.read_bytes(), ours.key.read_bytes(), None)
    assert mutual.pems()[2] == theirs.cert.read_bytes()


@pytest.mark.parametrize("field", ["cert", "key", "client_ca"])
@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_files_that_cannot_be_used_are_named(
    ours: Certificate, tmp_path: Path, field: str, content: bytes | None
) -> None:
    wrong = tmp_path / "wrong.pem"
    if content is not None:
        wrong.write_bytes(content)
    tls = replace(ServerTls(ours.cert, ours.key), **{field: wrong})
    for use in (tls.context, tls.pems):
        with pytest.raises(SettingsError, match="cannot use the TLS files") as caught:
            use()
        assert str(wrong) in str(caught.value)


def test_a_key_of_another_certificate_is_refused(ours: Certificate, theirs: Certificate) -> None:
    with pytest.raises(SettingsError, match="cannot use the TLS files"):
        ServerTls(ours.cert, theirs.key).context()
