"""The table of Redis error replies: the exception for each, and whether to retry.

This is the only place that classifies error replies. A kind that maps to a `StoreUnavailable` is
transient: the server sends it before it executes anything, so every call may be retried, even one
that is not repeatable. Every other kind is permanent: the call has failed. The third case is no
reply at all: after a broken connection the outcome is unknown, and only repeatable calls are
retried (`tambomq.store.roundtrip`).
"""

from __future__ import annotations

from typing import Final

import hiredis

from tambomq.errors import (
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    WrongType,
)

ERRORS: Final[dict[str, type[StoreError]]] = {
    # Transient: the server is loading, runs a long script, or has lost its primary.
    "LOADING": StoreUnavailable,
    "BUSY": StoreUnavailable,
    "MASTERDOWN": StoreUnavailable,
    # Transient: the slot is being migrated, or no node serves it until a failover.
    "TRYAGAIN": StoreUnavailable,
    "CLUSTERDOWN": StoreUnavailable,
    # Transient: the server became a replica during a blocking read.
    "UNBLOCKED": StoreUnavailable,
    # Transient: maxclients is reached until some client disconnects.
    "MAXCLIENTS": StoreUnavailable,
    # Transient, and reads work: a replica, a full disk, too few replicas.
    "READONLY": StoreReadOnly,
    "MISCONF": StoreReadOnly,
    "NOREPLICAS": StoreReadOnly,
    # Permanent: memory may be freed, but callers have their own backpressure for that.
    "OOM": StoreFull,
    # Permanent until a password, an ACL or the data is changed.
    "NOAUTH": StoreRefused,
    "WRONGPASS": StoreRefused,
    "NOPERM": StoreRefused,
    "DENIED": StoreRefused,
    "WRONGTYPE": WrongType,
    "CROSSSLOT": StoreError,
}
"""By `kind_of` the reply. Unknown kinds, such as ``ERR``, are permanent."""

_UNSPECIFIC: Final = {
    # Sent on a new connection just before the server closes it.
    "ERR max number of clients": "MAXCLIENTS",
    "ERR no such key": "NOKEY",
}
"""Kinds of our own for replies that callers must tell from other ``ERR`` replies, by prefix."""


def kind_of(error: hiredis.ReplyError) -> str:
    """Return the `StoreError.kind` of *error*."""
    text = str(error)
    code = text.partition(" ")[0]
    if code == "ERR":
        return next((kind for start, kind in _UNSPECIFIC.items() if text.startswith(start)), code)
    return code


def is_transient(error: hiredis.ReplyError) -> bool:
    """Whether the server did not execute the command, and may if it is sent again."""
    return issubclass(ERRORS.get(kind_of(error), StoreError), StoreUnavailable)


def translate(error: hiredis.ReplyError, keys: tuple[str, ...] = ()) -> StoreError:
    """Return the error to raise for the reply *error* to an operation on *keys*."""
    kind = kind_of(error)
    translated = _translated(kind, str(error), keys)
    translated.kind = kind
    return translated


def _translated(kind: str, text: str, keys: tuple[str, ...]) -> StoreError:
    cls = ERRORS.get(kind, StoreError)
    if cls is WrongType:
        return WrongType(keys)
    if cls is StoreFull:
        return StoreFull("the server is out of memory (maxmemory): free some, or raise the limit")
    if kind == "CROSSSLOT":
        return StoreError(
            "on a cluster the keys of one operation must share a slot: "
            "put the namespace in braces, such as {tag}; a journal cannot be kept on a cluster"
        )
    return cls(text)
