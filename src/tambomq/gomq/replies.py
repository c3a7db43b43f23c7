"""What the metadata of replies says: the batch to acknowledge, and whether a publish is durable."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from tambomq.errors import DurabilityUnsupported, NotDurable
from tambomq.gomq.server.auth import BATCH, DURABLE, TIMEOUT
from tambomq.gomq.server.durability import COPIES, WHY
from tambomq.store.durability.level import MEMORY

ReplyMetadata: TypeAlias = Iterable[tuple[str, str | bytes]] | None

_COPIES: Final = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")
_SILENT: Final = "the server knows no levels of durability, and has confirmed nothing"


@dataclass(frozen=True, slots=True)
class ObservedBatch:
    """The batch of records that the metadata of a reply names."""

    name: str = ""
    """What to acknowledge; empty if the server keeps no batches."""
    timeout_s: float | None = None
    """The peer timeout of the server; `None` if it does not name one."""


def batch_of(metadata: ReplyMetadata) -> ObservedBatch:
    """Return the batch that the *metadata* of a reply names."""
    values = {name: str(value) for name, value in metadata or () if name in (BATCH, TIMEOUT)}
    try:
        timeout_s = float(values[TIMEOUT])
    except (KeyError, ValueError):
        timeout_s = None
    return ObservedBatch(values.get(BATCH, ""), timeout_s)


def require_confirmed(level: str, metadata: ReplyMetadata, result: object) -> None:
    """Raise `NotDurable` with *result* unless the server has confirmed *level*, or it is memory.

    A server that does not know the request's metadata stores the messages, and ignores the level.
    """
    if level != MEMORY and dict(metadata or ()).get(DURABLE) != level:
        raise _not_durable(level, _SILENT, 0, 1, result)


def refused_level(error: Any, result: object) -> NotDurable | DurabilityUnsupported | None:
    """Return why gRPC's *error* says that a level was not reached; `None` if it says no such thing.

    *result* is what the call would have returned.
    """
    # What is sent without a reply's first part comes as either, depending on the transport.
    found = {**dict(error.initial_metadata() or ()), **dict(error.trailing_metadata() or ())}
    level, why = found.get(DURABLE), found.get(WHY)
    if not isinstance(level, str) or not isinstance(why, str):
        return None
    copies = _COPIES.fullmatch(str(found.get(COPIES, "")))
    if copies is None:
        return DurabilityUnsupported(level, unquote(why))
    return _not_durable(level, unquote(why), int(copies[1]), int(copies[2]), result)


def _not_durable(level: str, why: str, copies: int, wanted: int, result: object) -> NotDurable:
    error = NotDurable(level, why, acknowledged=copies, wanted=wanted)
    error.result = result
    return error
