"""The gRPC statuses of replies, and the mapping from errors to statuses."""

from __future__ import annotations

from enum import IntEnum

from tambomq.errors import (
    AccessDenied,
    BrokerRefused,
    DurabilityUnsupported,
    JournalFull,
    LimitReached,
    LocalProtocolError,
    MessageTooLong,
    NotAuthenticated,
    NotDurable,
    SettingsError,
    StoreError,
    StoreFull,
    WrongType,
)


class Code(IntEnum):
    """The gRPC status codes that we send, by their numbers on the wire."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


# The first match decides, so subclasses come before their base classes.
_CODES: tuple[tuple[type[Exception], Code], ...] = (
    (MessageTooLong, Code.RESOURCE_EXHAUSTED),
    (JournalFull, Code.RESOURCE_EXHAUSTED),
    (LimitReached, Code.RESOURCE_EXHAUSTED),
    (LocalProtocolError, Code.INVALID_ARGUMENT),
    (StoreFull, Code.RESOURCE_EXHAUSTED),
    (WrongType, Code.FAILED_PRECONDITION),
    (DurabilityUnsupported, Code.FAILED_PRECONDITION),
    # Not UNAVAILABLE, after which many clients send again by themselves: the message is stored.
    (NotDurable, Code.DEADLINE_EXCEEDED),
    (SettingsError, Code.FAILED_PRECONDITION),
    (StoreError, Code.UNAVAILABLE),
    (NotAuthenticated, Code.UNAUTHENTICATED),
    (AccessDenied, Code.PERMISSION_DENIED),
)


def status_of(error: Exception) -> tuple[Code, str]:
    """Return the status and text to send for *error*."""
    if isinstance(error, BrokerRefused):
        return Code[error.status], error.details
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code, str(error)
    # An internal error: its text goes to the log, not to the client.
    return Code.INTERNAL, "the server failed; its log says why"
