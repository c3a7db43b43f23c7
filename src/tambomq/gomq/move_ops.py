"""Messages on their way from or to another queue, as calls nobody has made yet.

How they go, and what a batch is: `tambomq.store.transit`. Only what waits in a main queue goes:
the rest is dispatched, and its consumers'.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tambomq.gomq import keys
from tambomq.gomq.appended import appended
from tambomq.journal.recording import Bounds
from tambomq.store import transit
from tambomq.store.call import Arg, Call, load_script
from tambomq.store.transit import BATCH, KEEP_S, ROOM, Batch

_TAKE = load_script("tambomq.gomq", "move_take")
_PUT = load_script("tambomq.gomq", "move_put")


class Coming(msgspec.Struct, frozen=True):
    """A message as it is to be published."""

    id: str
    element: bytes
    old: str = ""
    """What to remember that it was called before."""


def take(key: str, id: str, run: str) -> Call[Batch]:
    """Let messages leave a main queue; or return what is in transit already."""
    where = (keys.queue(key), keys.move(key, id), keys.transit(key, id))
    return Call(_TAKE, where, (run, BATCH, ROOM), transit.batch, repeatable=True)


def put(
    key: str,
    query: str,
    number: int,
    mark: str,
    messages: Sequence[Coming],
    journal: Bounds | None = None,
) -> Call[bool]:
    """Publish the messages of batch *number*; false if they were published before.

    With *journal* they are recorded; raises `JournalFull`, and publishes nothing.
    """
    words: list[Arg] = [number, mark, KEEP_S]
    for each in messages:
        words += (each.id, each.old, each.element)
    where = (keys.queue(key), keys.fence(key, query), keys.origins(key, query))
    call = Call(_PUT, where, tuple(words), bool, repeatable=True)
    return appended(key, journal, call, [each.element for each in messages])
