"""Who a caller is, and what it may do: decided from the users that are known, without any I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import translate
from typing import Final, TypeVar

from tambomq.access.model import (
    PROTOCOLS,
    RIGHTS,
    Right,
    TokenRecord,
    User,
    check_user,
    split_pattern,
)
from tambomq.access.tokens import is_token_of, token_id
from tambomq.errors import InvalidFormat, NotAuthenticated

T = TypeVar("T")

_IMPLIED: Final[Mapping[Right, tuple[Right, ...]]] = {"manage": ("look",)}
# Compared with where no record has the id of a token, so that this takes as long.
_NO_RECORD: Final = "00" * 32


def _compiled(queues: Iterable[str]) -> dict[str, re.Pattern[str]]:
    """Return one expression for each protocol of which there is a pattern."""
    parts: dict[str, list[str]] = {}
    for pattern in queues:
        protocol, name = split_pattern(pattern)
        for each in PROTOCOLS if protocol is None else (protocol,):
            parts.setdefault(each, []).append(translate(name))
    return {protocol: re.compile("|".join(each)) for protocol, each in parts.items()}


class Grant:
    """What one user may do. Nothing that is not granted is allowed."""

    __slots__ = ("_patterns", "_queues", "_whole", "name", "rights")

    def __init__(self, name: str, rights: Iterable[Right], queues: Iterable[str]) -> None:
        given = set(rights)
        self.name = name
        self.rights = frozenset(given.union(*(_IMPLIED.get(right, ()) for right in given)))
        self._queues = patterns = tuple(queues)
        self._patterns = _compiled(patterns)
        whole = [protocol for protocol, name in map(split_pattern, patterns) if name == "*"]
        self._whole = set(PROTOCOLS) if None in whole else set(whole)

    def is_same(self, other: Grant) -> bool:
        """Return whether *other* is of the same user, who may do the same."""
        return (self.name, self.rights, self._queues) == (other.name, other.rights, other._queues)

    def covers(self, protocol: str, queue: str) -> bool:
        """Return whether *queue* is among the user's queues."""
        pattern = self._patterns.get(protocol)
        return pattern is not None and pattern.fullmatch(queue) is not None

    def allows(self, right: Right, protocol: str, queue: str) -> bool:
        """Return whether the user has *right* on *queue*."""
        return right in self.rights and self.covers(protocol, queue)

    def allows_all(self, right: Right, protocol: str = "") -> bool:
        """Return whether the user has *right* on every queue, of *protocol* or of all."""
        wanted = {protocol} if protocol else set(PROTOCOLS)
        return right in self.rights and self._whole >= wanted

    def allows_any(self, right: Right, protocol: str) -> bool:
        """Return whether the user has *right* on any queue of *protocol*."""
        return right in self.rights and protocol in self._patterns


EVERYTHING: Final = Grant("token", RIGHTS, ("*",))
"""The grant of a token from the settings: that user has all rights."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A proven identity: the user, and when the proof ends."""

    grant: Grant
    token_id: str = ""
    """Empty for a client certificate."""
    expires: datetime | None = None
    identities: tuple[str, ...] = ()
    """The names of the client certificate; empty for a token."""
    is_fixed: bool = False
    """Whether it comes from the settings, which do not change while the process runs."""

    def is_expired(self, now: datetime) -> bool:
        """Return whether the proof has ended."""
        return self.expires is not None and now >= self.expires


class UserSet:
    """All users of a store. Raises `InvalidFormat` unless each is valid and recognised alone."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._grants: dict[str, Grant] = {}
        self._tokens: dict[str, tuple[str, TokenRecord]] = {}
        self._identities: dict[str, str] = {}
        for name, user in users.items():
            check_user(name, user)
            self._grants[name] = Grant(name, user.rights, user.queues)
            for record in user.tokens:
                _add(self._tokens, record.id, (name, record), "token")
            for identity in user.tls:
                _add(self._identities, identity, name, "TLS identity")

    def __len__(self) -> int:
        """Return the number of users."""
        return len(self._grants)

    def by_token(self, token: str, now: datetime) -> Credential:
        """Return whose *token* this is. Raises `NotAuthenticated`."""
        id = token_id(token)
        found = self._tokens.get(id) if id else None
        if found is None:
            is_token_of(token[:1], _unused_record(now))
            raise NotAuthenticated("the token is not valid")
        name, record = found
        if not is_token_of(token, record):
            raise NotAuthenticated("the token is not valid")
        if record.is_expired(now):
            raise NotAuthenticated(f"the token {record.id} of {name} has expired")
        return Credential(self._grants[name], record.id, record.expires)

    def by_identities(self, identities: Iterable[str]) -> Credential:
        """Return whose certificate has these names. Raises `NotAuthenticated`."""
        given = tuple(identities)
        if not given:
            raise NotAuthenticated("a token or a client certificate is required")
        names = {self._identities[each] for each in given if each in self._identities}
        if len(names) > 1:
            shown = ", ".join(sorted(names))
            raise NotAuthenticated(f"the client certificate is of several users: {shown}")
        if not names:
            raise NotAuthenticated("no user has the names of the client certificate")
        return Credential(self._grants[names.pop()], identities=given)

    def renewed(self, credential: Credential) -> Credential:
        """Return what *credential*, proven earlier, is now. Raises `NotAuthenticated`."""
        if credential.is_fixed:
            return credential
        if not credential.token_id:
            return self.by_identities(credential.identities)
        name, record = self._tokens.get(credential.token_id, ("", None))
        if record is None or name != credential.grant.name:
            raise NotAuthenticated("the token is no longer valid")
        return Credential(self._grants[name], record.id, record.expires)


def _add(index: dict[str, T], key: str, value: T, what: str) -> None:
    if key in index:
        raise InvalidFormat(what, key, "it belongs to one user, but stands twice")
    index[key] = value


def _unused_record(now: datetime) -> TokenRecord:
    return TokenRecord(id="00000000", salt=_NO_RECORD[:32], hash=_NO_RECORD, created=now)
