"""Messages on their way from or to another queue, as calls nobody has made yet.

How they go, and what a batch is: `tambomq.store.transit`. That a message has left is told where it
was, if that queue has a journal, and never a reason to keep it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.errors import MessageTooLong
from tambomq.ids import letters
from tambomq.journal.recording import BOUNDS, accounting
from tambomq.rsmq.keys import ID_SUFFIX_LENGTH, Keys
from tambomq.rsmq.recorded import journal_keys, recorded
from tambomq.rsmq.replies import existing
from tambomq.store import transit
from tambomq.store.call import Arg, Call, load_script
from tambomq.store.transit import BATCH, KEEP_S, ROOM, Batch

_TAKE = accounting(load_script("tambomq.rsmq", "move_take"), "tell")
_PUT = load_script("tambomq.rsmq", "move_put")


class Leaving(msgspec.Struct, frozen=True):
    """A message as it left its queue."""

    id: str
    body: bytes
    due_ms: int
    """When it would have become visible for the first time; 0 if it was."""


class Coming(msgspec.Struct, frozen=True):
    """A message as it is to be sent."""

    body: bytes
    delay_ms: int = 0
    old: str = ""
    """What to remember that it was called before."""


def take(keys: Keys, queue: str, id: str, run: str, *, skip: int, later: bool) -> Call[Batch]:
    """Let messages leave that nobody has in hand; or return what is in transit already.

    *later* asks for those that were sent with a delay. Raises `QueueNotFound`.
    """
    where = (*keys.of(queue), keys.move(queue, id), keys.transit(queue, id))
    journal = journal_keys(keys.ns, queue)
    bounds = keys.recording.bounds if keys.recording else BOUNDS
    told = (journal.journal, journal.state, bounds.max_entries, bounds.max_bytes)
    args = (run, BATCH, ROOM, skip, int(later), *told)
    return Call(_TAKE, where, args, partial(_batch, queue), repeatable=True)


def leaving(row: tuple[bytes, bytes]) -> Leaving:
    """Return the message that a row of a batch is."""
    due, _, id = row[0].split(b" ", 2)
    return Leaving(id.decode("utf-8", "replace"), row[1], int(due))


def put(
    keys: Keys, queue: str, query: str, number: int, mark: str, messages: Sequence[Coming]
) -> Call[bool]:
    """Send the messages of batch *number*; false if they were sent before.

    Raises `MessageTooLong`, `QueueNotFound` or `JournalFull`, and sends nothing.
    """
    longest = max(len(each.body) for each in messages)
    delays = "".join(f"{each.delay_ms}," for each in messages)
    suffixes = letters(ID_SUFFIX_LENGTH * len(messages))
    words: list[Arg] = [number, mark, KEEP_S, longest, delays, suffixes]
    for each in messages:
        words += (each.old, each.body)
    where = (*keys.of(queue), keys.fence(queue, query), keys.origins(queue, query))
    call = Call(_PUT, where, tuple(words), partial(_sent, queue, longest), repeatable=True)
    size = sum(len(each.body) for each in messages)
    return recorded(keys, queue, call, entries=len(messages), size=size)


def _batch(queue: str, reply: Any) -> Batch:
    return transit.batch(existing(queue, reply))


def _sent(queue: str, longest: int, reply: Any) -> bool:
    if isinstance(reply, list):
        raise MessageTooLong(queue, longest, reply[0])
    return bool(existing(queue, reply))
