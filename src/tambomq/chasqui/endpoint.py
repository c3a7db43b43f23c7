"""The engine's connection options (URL, TLS, credential provider) as an `Endpoint` of the store."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from tambomq.errors import InvalidFormat
from tambomq.store.endpoint import Credentials, Endpoint, Login, endpoint

CredentialProvider: TypeAlias = Callable[
    [str | None], Awaitable[tuple[str | None, str | None]] | tuple[str | None, str | None]
]
"""Called with ``host:port`` at each new connection; returns user and password."""

_OPTION: Final = "credential_provider"
_RULE: Final = "a function that is given host:port or None and returns user and password"


def endpoint_of(
    redis_url: str | Endpoint, *, tls: bool = False, provider: CredentialProvider | None = None
) -> Endpoint:
    """Return the endpoint of *redis_url*; *tls* turns ``redis`` into ``rediss``."""
    if tls and isinstance(redis_url, str):
        scheme, separator, rest = redis_url.rpartition("://")
        if not separator or scheme in ("redis", "redis+sentinel"):
            redis_url = f"rediss{scheme.removeprefix('redis')}://{rest}"
    found = endpoint(redis_url)
    if provider is None:
        return found
    return endpoint(found, credentials=_credentials(found, _check(provider)))


def _check(provider: CredentialProvider) -> CredentialProvider:
    """Return *provider* if it can be called with one argument; raise `InvalidFormat` if not."""
    if not callable(provider):
        raise InvalidFormat(_OPTION, provider, _RULE)
    try:
        inspect.signature(provider).bind(None)
    except TypeError as error:
        raise InvalidFormat(_OPTION, provider, _RULE) from error
    except ValueError:
        # Functions written in C may have no signature.
        pass
    return provider


def _credentials(found: Endpoint, provider: CredentialProvider) -> Credentials:
    # Which server is the primary of sentinels is not known before the login is asked for.
    address = None if found.path or not found.nodes else "{}:{}".format(*found.nodes[0])

    def ask() -> Login | Awaitable[Login]:
        answer = provider(address)
        return awaited(answer) if inspect.isawaitable(answer) else _login(provider, answer)

    async def awaited(answer: Awaitable[tuple[str | None, str | None]]) -> Login:
        return _login(provider, await answer)

    return ask


def _login(provider: CredentialProvider, pair: Any) -> Login:
    is_pair = isinstance(pair, tuple | list) and len(pair) == 2  # noqa: PLR2004  (user and password)
    if not is_pair or not all(each is None or isinstance(each, str) for each in pair):
        # The returned value is not shown: it may be a password.
        rule = f"it must return user and password, each text or None, not {type(pair).__name__}"
        raise InvalidFormat(_OPTION, provider, rule)
    user, password = pair
    return user or "", password or ""
