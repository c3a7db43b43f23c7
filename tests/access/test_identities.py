"""The names of client certificates, as Python, gRPC and Envoy report them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from tambomq.access.identities import MAX_IDENTITIES, of_envoy, of_grpc, of_ssl
from tests.servers.tls import certificate


def test_names_as_python_reports_them() -> None:
    found = {
        "subject": ((("countryName", "PE"),), (("commonName", "billing"),)),
        "subjectAltName": (("DNS", "b.example.com"), ("URI", "spiffe://x"), ("email", "a@b")),
    }
    assert of_ssl(found) == ("CN:billing", "DNS:b.example.com", "URI:spiffe://x")
    assert of_ssl({}) == of_ssl(None) == ()


def test_names_as_grpc_reports_them() -> None:
    found = {
        "x509_common_name": [b"billing"],
        "peer_dns": [b"b.example.com"],
        "peer_uri": [b"spiffe://x"],
        "x509_pem_cert": [b"..."],
    }
    assert of_grpc(found) == ("CN:billing", "DNS:b.example.com", "URI:spiffe://x")
    assert of_grpc({}) == of_grpc(None) == ()


def test_names_as_envoy_reports_them(tmp_path: Path) -> None:
    made = certificate(tmp_path, "billing", "DNS:a,URI:spiffe://x;DNS=b")
    expected = ("CN:billing", "DNS:a", "URI:spiffe://x;DNS=b")
    cert = f'Cert="{quote(made.cert.read_text())}"'
    assert of_envoy(f"By=spiffe://us;Hash=0a;{cert}") == expected
    assert of_envoy(cert) == expected
    # Names that stand in the header by themselves may be a part of another name.
    assert of_envoy('Hash=0a;Subject="CN=billing";URI=spiffe://x;DNS=a') == ()
    assert of_envoy(f"{cert};{cert}") == ()
    assert of_envoy(cert[:-20] + '"') == of_envoy('Cert="%ff"') == of_envoy("") == ()


@given(st.text())
def test_no_header_is_an_error(header: str) -> None:
    assert all(name.partition(":")[0] in ("CN", "DNS", "URI") for name in of_envoy(header))


def test_the_names_of_one_certificate_are_bounded() -> None:
    many = {"subjectAltName": tuple(("DNS", str(number)) for number in range(1000))}
    assert len(of_ssl(many)) == MAX_IDENTITIES
