"""The names in a client's certificate, as each transport reports them, in one form.

``CN:`` is the common name of its subject, ``DNS:`` and ``URI:`` are alternative names. The server
has verified the certificate before: nothing here may be asked about one that it has not.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from tambomq.access.certificates import names_in_der

_KINDS: Final = ("DNS", "URI")
MAX_IDENTITIES: Final = 100
"""Names of one certificate that are looked at."""
_CERTIFICATE: Final = re.compile(r'(?:^|;)Cert="([^"]*)"(?=;|$)')
# Each call of a client has it.
_CACHED: Final = 1000


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
    """Return the names in the certificate of Envoy's ``x-forwarded-client-cert``.

    ``Hash=…;Cert="-----BEGIN%20CERTIFICATE-----%0A…"``. Fields such as ``URI`` and ``DNS`` are not
    believed: Envoy writes the names there as they are, and a name may contain ``;DNS=…``.
    """
    return _in_envoy(header) if header else ()


@lru_cache(maxsize=_CACHED)
def _in_envoy(header: str) -> tuple[str, ...]:
    certificates = _CERTIFICATE.findall(header)
    if len(certificates) != 1:
        return ()
    try:
        der = ssl.PEM_cert_to_DER_cert(unquote(certificates[0], errors="strict"))
    except ValueError:
        return ()
    return _bounded(names_in_der(der))


def _bounded(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:MAX_IDENTITIES]
