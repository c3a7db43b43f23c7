"""The names in a client's certificate, as each transport reports them, in one form.

``CN:`` is the common name of its subject, ``DNS:`` and ``URI:`` are alternative names. The server
has verified the certificate before: nothing here may be asked about one that it has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

_KINDS: Final = ("DNS", "URI")
MAX_IDENTITIES: Final = 100
"""Names of one certificate that are looked at."""


def of_ssl(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names in what `ssl.SSLObject.getpeercert` returns."""
    if not certificate:
        return ()
    found = [
        f"CN:{value}"
        for relative in certificate.get("subject", ())
        for key, value in relative
        if key == "commonName"
    ]
    alternative = certificate.get("subjectAltName", ())
    found += [f"{kind}:{value}" for kind, value in alternative if kind in _KINDS]
    return _bounded(found)


def of_grpc(context: Mapping[str, Iterable[bytes]] | None) -> tuple[str, ...]:
    """Return the names in gRPC's authentication context."""
    if not context:
        return ()
    kinds = {"x509_common_name": "CN", "peer_dns": "DNS", "peer_uri": "URI"}
    return _bounded(
        f"{kind}:{value.decode('utf-8', 'backslashreplace')}"
        for key, kind in kinds.items()
        for value in context.get(key, ())
    )


def of_envoy(header: str) -> tuple[str, ...]:
    """Return the names in the last element of Envoy's ``x-forwarded-client-cert``.

    ``Subject="CN=billing,O=Example";URI=spiffe://a/b;DNS=a.example.com``
    """
    found = []
    for key, value in _fields(_split(header, ",")[-1]):
        if key == "subject":
            found += _common_names(value)
        elif key.upper() in _KINDS:
            found.append(f"{key.upper()}:{value}")
    return _bounded(found)


def _fields(element: str) -> Iterator[tuple[str, str]]:
    for field in _split(element, ";"):
        key, _, value = field.partition("=")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1].replace('\\"', '"')
        yield key.strip().lower(), value


def _common_names(subject: str) -> list[str]:
    """Return the common names in *subject*, written as RFC 2253 says."""
    parts = (part.strip() for part in _split(subject, ",", quotes=False))
    return [f"CN:{_unescaped(part[3:])}" for part in parts if part.upper().startswith("CN=")]


def _split(text: str, separator: str, *, quotes: bool = True) -> Sequence[str]:
    """Split *text*, but not within quotes, and not after a backslash."""
    parts, part, is_quoted, is_escaped = [], "", False, False
    for character in text:
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character == '"' and quotes:
            is_quoted = not is_quoted
        elif character == separator and not is_quoted:
            parts.append(part)
            part = ""
            continue
        part += character
    return [*parts, part]


def _unescaped(text: str) -> str:
    return "".join(part or "\\" for part in text.split("\\"))


def _bounded(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:MAX_IDENTITIES]
