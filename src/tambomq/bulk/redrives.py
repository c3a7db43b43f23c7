"""What the ledgers of redrives answer alike, in all protocols that have dead letters.

A *redrive* lets dead letters be delivered again. What it was told, and each letter that it moved,
stands beside the queue: written in the script that moves, so that who follows after a crash goes
on, and whoever regrets it can put back what nobody has taken yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from tambomq.errors import RemoteProtocolError
from tambomq.store.call import Arg, Call, Plan, load_script, results

_OPEN = load_script("tambomq.store", "redrive_open")
_SETTLE = load_script("tambomq.store", "redrive_settle")

KEEP_S: Final = 7 * 24 * 3600
"""For how long a redrive is remembered after its last move."""
CHUNK: Final = 250
"""Letters of one script, which takes some 2 ms; others wait no longer than that."""

OPEN, STOPPED, DONE, UNDONE = "open", "stopped", "done", "undone"
"""Under way, or its process died; ended by its canary; ended; taken back."""


class Redrive(msgspec.Struct, frozen=True):
    """A redrive: what it was told, and how far it has come."""

    id: str
    where: str = ""
    """Which letters: Spark SQL."""
    rewrite: str = ""
    """The new body, as Spark SQL; '' for the old."""
    attempts: str = "reset"
    until: str = ""
    """The last letter there was when it began: those that die later are not for it."""
    dead: str = ""
    """Where the letters are, in protocols where that has a name of its own."""
    selected: int = 0
    canary: int = 0
    """How many go ahead."""
    state: str = OPEN
    begun_ms: int = 0
    moved: int = 0
    undone: int = 0

    def fields(self) -> tuple[Arg, ...]:
        """Return names and values as they are stored."""
        stored = msgspec.structs.asdict(self)
        del stored["id"]
        return tuple(word for pair in stored.items() for word in pair)


class Moved(msgspec.Struct, frozen=True):
    """What one script did."""

    total: int
    """Letters that the redrive has moved since it began."""
    held: int = 0
    """Letters of these that somebody is looking at."""
    refused: int = 0
    """Letters of these that the queue does not take."""
    is_full: bool = False
    """Whether there was no room for the rest."""


class Undone(msgspec.Struct, frozen=True):
    """What became of letters that were moved."""

    back: int = 0
    running: int = 0
    """Somebody has received them, and is not done."""
    consumed: int = 0
    """They are gone: done, or dead again."""

    def __add__(self, other: Undone) -> Undone:
        return Undone(
            self.back + other.back, self.running + other.running, self.consumed + other.consumed
        )


def begin(redrives: str, record: str, told: Redrive) -> Call[Redrive]:
    """Begin *told*; or return the redrive that has its id already, as it is."""
    args = (told.id, KEEP_S, *told.fields())
    return Call(_OPEN, (redrives, record), args, partial(read, told.id), repeatable=True)


def known(redrives: str, record: Callable[[str], str]) -> Plan[list[Redrive]]:
    """Return the redrives of a queue that are remembered, the oldest first."""
    listed = Call("SMEMBERS", (redrives,), (), _texts, repeatable=True)
    ids = results((yield (listed,)))[0]
    calls = [Call("HGETALL", (record(id),), (), list, repeatable=True) for id in ids]
    found = dict(zip(ids, results((yield calls)) if calls else [], strict=True))
    if forgotten := [id for id in ids if not found[id]]:
        yield (Call("SREM", (redrives,), tuple(forgotten), int, repeatable=True),)
    kept = []
    for id, fields in found.items():
        # One that cannot be read hides no other.
        with suppress(RemoteProtocolError):
            kept += [read(id, fields)] if fields else []
    return sorted(kept, key=lambda each: (each.begun_ms, each.id))


def settle(record: str, state: str) -> Call[bool]:
    """Say what has become of a redrive; false if it is undone, or forgotten."""
    return Call(_SETTLE, (record,), (state,), bool, repeatable=True)


def read(id: str, reply: Sequence[Any]) -> Redrive:
    """Return the redrive that the fields of a hash say; unknown ones are left out.

    Raises `RemoteProtocolError` if somebody has damaged it.
    """
    pairs = zip(reply[::2], reply[1::2], strict=True)
    found = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in pairs}
    known = {name: found[name] for name in Redrive.__struct_fields__ if name in found}
    try:
        return msgspec.convert({**known, "id": id}, Redrive, strict=False)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"redrive {id!r} cannot be read: {error}") from error


def moved(reply: Sequence[int]) -> Moved:
    """Return what the script that moves answers."""
    total, held, refused, full = reply
    return Moved(total, held, refused, bool(full))


def undone(reply: Sequence[Any]) -> tuple[str, Undone]:
    """Return where to go on, '' at the end, and what became of the letters so far."""
    after, *counts = reply
    return after.decode(), Undone(*counts)


def _texts(reply: Sequence[bytes]) -> list[str]:
    return sorted(each.decode("utf-8", "replace") for each in reply)
