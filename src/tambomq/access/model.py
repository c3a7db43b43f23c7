"""Users, their rights and the records of their tokens: values, and which of them are valid."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Final, Literal, get_args

import msgspec

from tambomq.errors import InvalidFormat

Right = Literal["send", "receive", "manage", "look"]
"""What a user may do with a queue.

``send`` messages, ``receive`` them (subscribe, observe, consume), ``look`` at the queue and its
messages in the console, ``manage`` it: pause, delete, edit, replay. Who may manage may look.
"""
Protocol = Literal["rsmq", "chasqui", "gomq", "kqueue"]

RIGHTS: Final[tuple[Right, ...]] = get_args(Right)
PROTOCOLS: Final[tuple[Protocol, ...]] = get_args(Protocol)
IDENTITY_KINDS: Final = ("CN", "DNS", "URI")
"""Kinds of names in a certificate that identify a user."""
MAX_TOKENS: Final = 2
"""Valid tokens of a user: the one in use, and its successor during a rotation."""
MAX_USERS: Final = 10_000
MAX_TEXT: Final = 1000

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_HEX: Final = r"^[0-9a-f]+$"
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]


class TokenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is kept of a token: nothing from which it could be computed."""

    id: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9]{8}$")]
    """The public part of the token, by which its record is found."""
    salt: Annotated[str, msgspec.Meta(pattern=_HEX, min_length=32, max_length=128)]
    hash: Annotated[str, msgspec.Meta(pattern=_HEX, min_length=64, max_length=64)]
    """SHA-256 of the salt and the token, in hexadecimal digits, as the salt is."""
    created: Annotated[datetime, msgspec.Meta(tz=True)]
    expires: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    def is_expired(self, now: datetime) -> bool:
        """Return whether it is no longer valid at *now*."""
        return self.expires is not None and now >= self.expires


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a user may do, with which queues, and how it is recognised."""

    rights: list[Right]
    queues: Annotated[list[_Text], msgspec.Meta(min_length=1)]
    """Patterns of queue names, of one protocol (``gomq:orders-*``) or of all (``orders-*``)."""
    tls: list[_Text] = []
    """Names in client certificates: ``CN:…``, ``DNS:…`` or ``URI:…``."""
    tokens: list[TokenRecord] = []


def check_user(name: str, user: User) -> User:
    """Return *user* if it is valid. Raises `InvalidFormat`."""
    check_name(name)
    if not user.rights:
        raise InvalidFormat("rights of the user", name, f"at least one of {', '.join(RIGHTS)}")
    for pattern in user.queues:
        check_pattern(pattern)
    for identity in user.tls:
        check_identity(identity)
    return user


def check_name(name: str) -> str:
    """Return *name* if it may name a user. Raises `InvalidFormat`."""
    if _NAME.fullmatch(name) is None:
        rule = "1 to 64 of A-Z a-z 0-9 _ . @ -, and no sign first"
        raise InvalidFormat("user", name[:MAX_TEXT], rule)
    return name


def check_pattern(pattern: str) -> str:
    """Return *pattern* if it is a pattern of queues. Raises `InvalidFormat`."""
    protocol, name = split_pattern(pattern)
    if not name or not pattern.isprintable():
        rule = "a name or pattern such as orders-*, gomq:orders-* or kqueue:*"
        raise InvalidFormat("queue", pattern, rule)
    # A name with a colon is possible, but a misspelt protocol is far more likely.
    head, colon, _ = pattern.partition(":")
    if colon and protocol is None and head != "*":
        rule = f"before the colon stands {', '.join(PROTOCOLS)}, or * for all"
        raise InvalidFormat("queue", pattern, rule)
    return pattern


def split_pattern(pattern: str) -> tuple[Protocol | None, str]:
    """Return the protocol of *pattern*, `None` for all, and the pattern of the name."""
    head, colon, name = pattern.partition(":")
    if colon and head == "*":
        return None, name
    for protocol in PROTOCOLS:
        if colon and head == protocol:
            return protocol, name
    return None, pattern


def check_identity(identity: str) -> str:
    """Return *identity* if it is a name of a certificate. Raises `InvalidFormat`."""
    kind, _, name = identity.partition(":")
    if kind not in IDENTITY_KINDS or not name or not identity.isprintable():
        rule = "CN:, DNS: or URI: and a name of the client's certificate, such as CN:billing"
        raise InvalidFormat("TLS identity", identity, rule)
    return identity
