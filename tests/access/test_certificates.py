"""The names in certificates that openssl has made, as Python's own decoder finds them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.access.certificates import names_in_der
from tambomq.access.identities import of_ssl
from tests.servers.tls import certificate


def der_of(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


@pytest.mark.parametrize(
    ("name", "alternative"),
    [
        ("billing", "DNS:a.example.com,URI:spiffe://x/y,IP:127.0.0.1,email:a@b"),
        ("Zoë, Söhne/O=Example/CN=second", "critical,DNS:*.example.com"),
        ("x" * 64, ",".join(f"DNS:host-{number}.example.com" for number in range(80))),
        ("none", 'URI:x";DNS=b.example.com'),
    ],
)
def test_names_are_those_that_python_finds(tmp_path: Path, name: str, alternative: str) -> None:
    made = certificate(tmp_path, name, alternative)
    expected = of_ssl(ssl._ssl._test_decode_cert(str(made.cert)))  # type: ignore[attr-defined]
    assert expected
    assert tuple(names_in_der(der_of(made.cert))) == expected


def test_what_is_no_certificate_has_no_names(tmp_path: Path) -> None:
    der = der_of(certificate(tmp_path, "billing").cert)
    assert names_in_der(b"") == names_in_der(der + der) == []
    for end in range(len(der)):
        assert names_in_der(der[:end]) == []


@given(st.binary())
def test_no_bytes_are_an_error(data: bytes) -> None:
    assert isinstance(names_in_der(data), list)
