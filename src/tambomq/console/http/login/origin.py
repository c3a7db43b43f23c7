"""Checks of Host, Origin and Sec-Fetch-Site: only pages of this console may call it.

A page of another site can make a browser send requests here. A name of another site may even be
resolved to this machine (DNS rebinding): then only the Host header shows it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from tambomq.console.http.problems import Problem

_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104  (compared, not bound)
_PORTS: Final = {"http": 80, "https": 443}
_OWN: Final = ("same-origin", "none")


class HostRule:
    """The hosts by which the console may be called.

    Loopback names, the *bound* host, and *allowed* ones. An address is allowed if it listens on
    all of them: only names can be rebound.
    """

    def __init__(self, bound: str, allowed: Collection[str]) -> None:
        self._names = {name.lower().rstrip(".").strip("[]") for name in (bound, *allowed)}
        self._any_address = bound in _WILDCARDS

    def check(self, host: str) -> None:
        """Raise `Problem` unless *host*, the value of the header, is one of them."""
        name = _split(f"//{host}")[0]
        if not name or not self._allows(name.rstrip(".")):
            raise Problem(
                403,
                "host",
                f"This is not served under the name {host!r}: open it by the address that is "
                "printed at the start, or allow the name with --http-allowed-host.",
            )

    def _allows(self, name: str) -> bool:
        if name == "localhost" or name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._any_address


def check_origin(headers: Mapping[str, str], scheme: str) -> None:
    """Raise `Problem` if a page of another origin has made the request.

    *scheme* is that of the request. Programs send neither header.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in _OWN:
        raise _foreign(site)
    if origin is not None and not _is_own(origin, headers.get("host", ""), scheme):
        raise _foreign(origin)


def _is_own(origin: str, host: str, scheme: str) -> bool:
    name, port = _split(origin)
    own_name, own_port = _split(f"//{host}")
    spoken = origin.partition("://")[0]
    # A proxy may speak HTTPS where we see HTTP; the other way round is a downgrade.
    if not name or name != own_name or spoken not in (scheme, "https"):
        return False
    return (port or _PORTS[spoken]) == (own_port or _PORTS[spoken])


def _split(url: str) -> tuple[str, int | None]:
    """Return host and port of *url*; an empty host if it is malformed."""
    try:
        parts = urlsplit(url)
        if parts.username is not None or parts.path or parts.query or parts.fragment:
            return "", None
        return (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "", None


def _foreign(origin: str) -> Problem:
    return Problem(
        403, "origin", f"A page of another origin ({origin}) made this request: it is refused."
    )
