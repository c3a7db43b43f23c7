"""The names in the client certificate of a connection, which the server puts into its state."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

IDENTITIES: Final = "tls_identities"
"""Where the server puts them: a key of the state of a connection, in ASGI's scope."""


def identities_of(request: Request) -> tuple[str, ...]:
    """Return the names in the caller's certificate, which was verified; none without one."""
    found: tuple[str, ...] = request.scope.get("state", {}).get(IDENTITIES, ())
    return found
