"""The error replies of Redis: which error of ours each becomes, and whether the call is repeated.

One table for everybody who sees a reply. A code that stands here as a `StoreUnavailable` is
transient: the server says it before it does anything, so that any call may be made again, also one
that is not repeatable. Every other code is permanent: the call has failed. The third case is no
reply at all: after a broken connection the outcome is unknown, and only repeatable calls are made
again (`tambomq.store.trip`).
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
    # Transient: a server that starts, is busy with a script, or waits for its primary.
    "LOADING": StoreUnavailable,
    "BUSY": StoreUnavailable,
    "MASTERDOWN": StoreUnavailable,
    # Transient: slots that are on the move, or that nobody serves until a replica takes over.
    "TRYAGAIN": StoreUnavailable,
    "CLUSTERDOWN": StoreUnavailable,
    # Transient: a blocking read on a server that became a replica meanwhile.
    "UNBLOCKED": StoreUnavailable,
    # Transient, and reads work: a replica; a disk that takes no data; too few replicas connected.
    "READONLY": StoreReadOnly,
    "MISCONF": StoreReadOnly,
    "NOREPLICAS": StoreReadOnly,
    # Permanent: memory may be freed, but callers have rules of their own for that.
    "OOM": StoreFull,
    # Permanent: until somebody changes a password, an ACL or the data.
    "NOAUTH": StoreRefused,
    "WRONGPASS": StoreRefused,
    "NOPERM": StoreRefused,
    "DENIED": StoreRefused,
    "WRONGTYPE": WrongType,
    "CROSSSLOT": StoreError,
}
"""By the first word of the reply. Unknown codes, as ``ERR``, are permanent."""

# One client too many: said on a new connection, before the server hangs up.
_TOO_MANY: Final = "ERR max number of clients"


def is_transient(error: hiredis.ReplyError) -> bool:
    """Whether the server did nothing, and may do it when it is asked again."""
    text = str(error)
    kind = ERRORS.get(text.partition(" ")[0], StoreError)
    return issubclass(kind, StoreUnavailable) or text.startswith(_TOO_MANY)


def translate(error: hiredis.ReplyError, keys: tuple[str, ...] = ()) -> StoreError:
    """Return what *error* means for an operation on *keys*."""
    text = str(error)
    code = text.partition(" ")[0]
    kind = ERRORS.get(code, StoreError)
    if kind is WrongType:
        return WrongType(keys)
    if kind is StoreFull:
        return StoreFull("the server is out of memory (maxmemory): free some, or raise the limit")
    if code == "CROSSSLOT":
        return StoreError(
            "on a cluster the keys of one operation must share a slot: "
            "put the namespace in braces, such as {tag}; a journal cannot be kept on a cluster"
        )
    return StoreUnavailable(text) if text.startswith(_TOO_MANY) else kind(text)
