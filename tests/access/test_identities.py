"""The names of client certificates, as Python, gRPC and Envoy report them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.access.identities import MAX_IDENTITIES, of_envoy, of_grpc, of_ssl


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


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("", ()),
        ('Subject="CN=billing,O=X"', ("CN:billing",)),
        ('Hash=0a;Subject="O=X,CN=b";URI=spiffe://x;DNS=a;DNS=c', None),
        # Only the last element is of the client that is connected to us.
        ('Subject="CN=admin";DNS=a,Subject="CN=b"', ("CN:b",)),
        # What stands in another attribute is no common name.
        ('Subject="O=CN\\=admin\\,CN=admin,CN=b"', ("CN:b",)),
        ('Subject="CN=a\\,CN=admin"', ("CN:a,CN=admin",)),
        ('Subject="CN=a\\";URI=spiffe://admin"', ('CN:a";URI=spiffe://admin',)),
    ],
)
def test_names_as_envoy_reports_them(header: str, names: tuple[str, ...] | None) -> None:
    expected = ("CN:b", "URI:spiffe://x", "DNS:a", "DNS:c") if names is None else names
    assert of_envoy(header) == expected


@given(st.text())
def test_no_header_is_an_error(header: str) -> None:
    assert all(name.partition(":")[0] in ("CN", "DNS", "URI") for name in of_envoy(header))


def test_the_names_of_one_certificate_are_bounded() -> None:
    many = {"subjectAltName": tuple(("DNS", str(number)) for number in range(1000))}
    assert len(of_ssl(many)) == MAX_IDENTITIES
