"""How the engine's users say where the server is, as `store` wants to hear it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tambomq.store.connect import Credentials, Endpoint, Login, endpoint

CredentialProvider: TypeAlias = Callable[
    [str | None], Awaitable[tuple[str | None, str | None]] | tuple[str | None, str | None]
]
"""Asked for user and password, with ``host:port``, at each new connection."""


def endpoint_of(
    redis_url: str | Endpoint, *, tls: bool = False, provider: CredentialProvider | None = None
) -> Endpoint:
    """Return where *redis_url* leads; *tls* makes a plain URL a secure one."""
    if tls and isinstance(redis_url, str):
        scheme, separator, rest = redis_url.rpartition("://")
        if not separator or scheme == "redis":
            redis_url = f"rediss://{rest}"
    found = endpoint(redis_url)
    if provider is None:
        return found
    return endpoint(found, credentials=_credentials(found, provider))


def _credentials(found: Endpoint, provider: CredentialProvider) -> Credentials:
    host, port = found.nodes[0]

    def ask() -> Login | Awaitable[Login]:
        answer = provider(None if found.path else f"{host}:{port}")
        if isinstance(answer, tuple):
            return _login(answer)
        return _awaited(answer)

    return ask


async def _awaited(answer: Awaitable[tuple[str | None, str | None]]) -> Login:
    return _login(await answer)


def _login(pair: tuple[str | None, str | None]) -> Login:
    user, password = pair
    return user or "", password or ""
