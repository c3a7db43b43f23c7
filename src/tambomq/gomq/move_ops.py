"""Messages on their way from or to another queue, as calls nobody has made yet.

How they go, and what a batch is: `tambomq.store.transit`. Only what waits in a main queue goes:
the rest is dispatched, and its consumers'. That a message has left is told where it was, if
that key has a journal, and never a reason to keep it there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tambomq.gomq import keys
from tambomq.gomq.appended import appended
from tambomq.journal.keys import Keys
from tambomq.journal.recording import BOUNDS, Bounds, accounting
from tambomq.store import transit
from tambomq.store.call import Arg, Call, load_script
from tambomq.store.transit import BATCH, KEEP_S, ROOM, Batch

_TAKE = accounting(load_script("tambomq.gomq", "move_take", "message_id"), "tell")
_PUT = load_script("tambomq.gomq", "move_put")


class Coming(msgspec.Struct, frozen=True):
    """A message as it is to be published."""

    id: str
    element: bytes
    old: str = ""
    """What to remember that it was called before."""


def take(key: str, id: str, run: str, journal: Bounds = BOUNDS) -> Call[Batch]:
    """Let messages leave a main queue; or return what is in transit already.

    *journal* says how much a journal holds, if the key has one.
    """
    found = Keys("gomq", key)
    told = (found.journal, found.state, journal.max_entries, journal.max_bytes)
    where = (keys.queue(key), keys.move(key, id), keys.transit(key, id))
    return Call(_TAKE, where, (run, BATCH, ROOM, *told), transit.batch, repeatable=True)


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
