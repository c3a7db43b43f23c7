"""Redrives: dead letters returned to their queue, recorded so that they can be resumed and undone.

The options of a *redrive*, and each dead letter that it has moved, are stored beside the queue by
the script that moves. After a crash the next run continues, and an undo puts back what no consumer
has received yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from tambomq.errors import RemoteProtocolError
from tambomq.store.call import Arg, Call, Plan, load_script, results

_OPEN = load_script("tambomq.bulk", "redrive_open")
_SETTLE = load_script("tambomq.bulk", "redrive_settle")

KEEP_S: Final = 7 * 24 * 3600
"""How long the record of a redrive is kept after its last move."""
CHUNK: Final = 250
"""Dead letters per script: that takes some 2 ms, during which Redis serves no other client."""

OPEN, STOPPED, DONE, UNDONE = "open", "stopped", "done", "undone"
"""Running (or its process died); stopped by its canary; finished; undone."""


class Redrive(msgspec.Struct, frozen=True):
    """The stored record of a redrive: its options and its progress."""

    id: str
    where: str = ""
    """Which dead letters, as a Spark SQL condition."""
    rewrite: str = ""
    """The new body, as a Spark SQL expression; '' keeps the old one."""
    attempts: str = "reset"
    until: str = ""
    """The last dead letter when the redrive began; later ones are not moved."""
    dead: str = ""
    """The dead-letter queue, in protocols where it has a name of its own."""
    selected: int = 0
    canary: int = 0
    """How many dead letters are moved first, and watched."""
    state: str = OPEN
    begun_ms: int = 0
    moved: int = 0
    undone: int = 0

    def fields(self) -> tuple[Arg, ...]:
        """Return field names and values alternating, as stored."""
        stored = msgspec.structs.asdict(self)
        del stored["id"]
        return tuple(word for pair in stored.items() for word in pair)


class MoveResult(msgspec.Struct, frozen=True):
    """The outcome of one script that moves dead letters."""

    total: int
    """Dead letters that the redrive has moved in all."""
    held: int = 0
    """Of these, dead letters that a consumer holds."""
    refused: int = 0
    """Of these, dead letters that the queue does not accept."""
    is_full: bool = False
    """Whether the queue is full, and the rest was not moved."""


class UndoResult(msgspec.Struct, frozen=True):
    """The outcome of an undo."""

    back: int = 0
    """Moved back."""
    running: int = 0
    """Received by a consumer, and not settled."""
    consumed: int = 0
    """Settled: done, or dead-lettered again."""

    def __add__(self, other: UndoResult) -> UndoResult:
        return UndoResult(
            self.back + other.back, self.running + other.running, self.consumed + other.consumed
        )


def begin(redrives: str, record: str, redrive: Redrive) -> Call[Redrive]:
    """Store *redrive*, or return the one that is already stored with its id."""
    args = (redrive.id, KEEP_S, *redrive.fields())
    return Call(_OPEN, (redrives, record), args, partial(read, redrive.id), repeatable=True)


def known(redrives: str, record: Callable[[str], str]) -> Plan[list[Redrive]]:
    """Return the stored redrives of a queue, the oldest first; unreadable ones are left out."""
    listed = Call("SMEMBERS", (redrives,), (), _texts, repeatable=True)
    ids = results((yield (listed,)))[0]
    calls = [Call("HGETALL", (record(id),), (), list, repeatable=True) for id in ids]
    found = dict(zip(ids, results((yield calls)) if calls else [], strict=True))
    if forgotten := [id for id in ids if not found[id]]:
        yield (Call("SREM", (redrives,), tuple(forgotten), int, repeatable=True),)
    kept = []
    for id, fields in found.items():
        with suppress(RemoteProtocolError):
            kept += [read(id, fields)] if fields else []
    return sorted(kept, key=lambda each: (each.begun_ms, each.id))


def settle(record: str, state: str) -> Call[bool]:
    """Set the state of a redrive; false if it is undone, or no longer stored."""
    return Call(_SETTLE, (record,), (state,), bool, repeatable=True)


def read(id: str, reply: Sequence[Any]) -> Redrive:
    """Return the redrive in the fields of a hash; unknown fields are ignored.

    Raises `RemoteProtocolError` if it is damaged.
    """
    pairs = zip(reply[::2], reply[1::2], strict=True)
    found = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in pairs}
    known = {name: found[name] for name in Redrive.__struct_fields__ if name in found}
    try:
        return msgspec.convert({**known, "id": id}, Redrive, strict=False)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"redrive {id!r} cannot be read: {error}") from error


def moved(reply: Sequence[int]) -> MoveResult:
    """Return the reply of a script that moves dead letters."""
    total, held, refused, full = reply
    return MoveResult(total, held, refused, bool(full))


def undone(reply: Sequence[Any]) -> tuple[str, UndoResult]:
    """Return the cursor ('' at the end), and the outcome of this chunk."""
    after, *counts = reply
    return after.decode(), UndoResult(*counts)


def _texts(reply: Sequence[bytes]) -> list[str]:
    return sorted(each.decode("utf-8", "replace") for each in reply)
