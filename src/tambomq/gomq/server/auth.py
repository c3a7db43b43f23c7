"""The peer of a call: its name, its options from the metadata, and its authentication."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from tambomq.errors import BrokerRefused, InvalidFormat, LimitReached, NotAuthenticated

if TYPE_CHECKING:
    # Clients use this module too, and need no users.
    from tambomq.access.directory import UserDirectory, UserSession

Identities = Callable[[], tuple[str, ...]]
"""Returns the names in the verified certificate of a client."""

PEER: Final = "x-gomq-peer"
"""Request metadata: the name of the peer, instead of its address."""
ACK: Final = "x-gomq-ack"
"""Metadata of Observe: the last batch that arrived, or empty. Batches are kept until then."""
MAX: Final = "x-gomq-max"
"""Metadata of Observe: the limit of records per key; 0 only acknowledges."""
BATCH: Final = "x-gomq-batch"
"""Metadata of Observe's reply: the batch to acknowledge."""
TIMEOUT: Final = "x-gomq-timeout"
"""Metadata of Observe's reply with a batch: the peer timeout in seconds."""
DURABLE: Final = "x-gomq-durable"
"""The level of durability: as asked for in a request, as confirmed or missed in a reply."""
_MAX_NAME_CHARS: Final = 128


@dataclass(frozen=True, slots=True)
class Caller:
    """The peer that makes a call, its options, and the metadata of the reply."""

    peer: str
    ack: str | None = None
    limit: int | None = None
    """Records per key that it wants at most."""
    reply: dict[str, str] = field(default_factory=dict)
    """Metadata to send with the reply."""
    address: str = ""
    """The connection of a peer with a name; empty for others."""
    session: UserSession | None = field(default=None, compare=False, repr=False)
    """The user that calls; `None` where access control is off."""
    durable: str | None = None
    """The level of durability that it asks for; `None` for the server's default."""


class PeerNameLimit:
    """Limits each connection to *max_names* peer names within *window_s* seconds."""

    def __init__(self, max_names: int, window_s: float) -> None:
        self._max_names, self._window_s, self._swept = max_names, window_s, 0.0
        # By connection its names with the times of their last use, the latest last.
        self._used: dict[str, dict[str, float]] = {}

    def use(self, caller: Caller, now: float) -> None:
        """Count a call of *caller*. Raises `LimitReached`."""
        if not caller.address:
            return
        self._sweep(now)
        names = self._used.setdefault(caller.address, {})
        if names.pop(caller.peer, None) is None and len(names) >= self._max_names:
            _forget(names, now - self._window_s)
            if len(names) >= self._max_names:
                raise LimitReached("this connection", self._max_names, "peers")
        names[caller.peer] = now

    def _sweep(self, now: float) -> None:
        if now - self._swept < self._window_s:
            return
        self._swept = now
        for names in self._used.values():
            _forget(names, now - self._window_s)
        self._used = {address: names for address, names in self._used.items() if names}


def _forget(names: dict[str, float], before: float) -> None:
    for name in list(takewhile(lambda each: names[each] < before, names)):
        del names[name]


def no_certificate() -> tuple[str, ...]:
    """Return no names: the client has no certificate."""
    return ()


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Admits calls: all, or with a *token* those that send it as a bearer token.

    With a *directory* each call needs one of its users, by token or client certificate; *token*
    then is a user with all rights. Raises `InvalidFormat` for an empty token.
    """

    token: str | None = field(default=None, repr=False)
    directory: UserDirectory | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.token == "":
            # Who sends no token would have it: an unset variable must not open the server.
            raise InvalidFormat("token", "", "None, or at least one character")

    def admit(
        self,
        address: str,
        metadata: Mapping[str, str],
        identities: Identities = no_certificate,
    ) -> Caller:
        """Return the caller at *address*, ``host:port``.

        Keys of *metadata* are in lower case. Raises `BrokerRefused`, `NotAuthenticated` and
        `InvalidFormat`.
        """
        session = None
        if self.directory is not None:
            session = self._log_in(self.directory, address, metadata, identities)
        elif self.token is not None and not self._is_token(_given_token(metadata)):
            raise BrokerRefused("call", "UNAUTHENTICATED", "a valid bearer token is required")
        name, durable = metadata.get(PEER), metadata.get(DURABLE)
        # Batches are kept only for peers with a name: these can reconnect from another port.
        if name is None:
            return Caller(address, None, _limit(metadata), session=session, durable=durable)
        _check(name)
        limit = _limit(metadata)
        kept = metadata.get(ACK), limit
        return Caller(name, *kept, address=address, session=session, durable=durable)

    def _log_in(
        self,
        directory: UserDirectory,
        address: str,
        metadata: Mapping[str, str],
        identities: Identities,
    ) -> UserSession:
        try:
            if "authorization" not in metadata:
                return directory.log_in_by(identities())
            # A wrong token is an error, whatever the certificate says.
            token = _given_token(metadata)
            return directory.everything() if self._is_token(token) else directory.log_in(token)
        except NotAuthenticated as error:
            directory.denials.count(error, address)
            raise

    def _is_token(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())


def _given_token(metadata: Mapping[str, str]) -> str:
    return metadata.get("authorization", "").removeprefix("Bearer ")


def _limit(metadata: Mapping[str, str]) -> int | None:
    text = metadata.get(MAX)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > len("999999999"):
        raise InvalidFormat(MAX, text, "a number")
    return int(text)


def _check(name: str) -> None:
    # Addresses have a colon: without one, no peer can pose as another's address. Without an
    # underscore, the peer in the key of a dedicated queue is what follows the last one.
    is_valid = name.isprintable() and not {":", "_"}.intersection(name)
    if not name or len(name) > _MAX_NAME_CHARS or not is_valid:
        rule = f"1 to {_MAX_NAME_CHARS} printable characters, no colon and no underscore"
        raise InvalidFormat(PEER, name, rule)
