"""Calls that move GOMQ messages from one key to another (see `tambomq.bulk.moves`).

Only messages in a main queue are moved; dispatched messages belong to their consumers. If the
source key has a journal, the departure of each message is recorded there. A full journal never
blocks a move.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tambomq.bulk import moves
from tambomq.bulk.moves import KEEP_S, MAX_BYTES, MAX_MESSAGES, MoveBatch
from tambomq.gomq import keys
from tambomq.gomq.ops.journal import record_publish
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalPolicy
from tambomq.store.call import Arg, Call, load_script

_TAKE = load_script("tambomq.gomq.bulk", "move_take", journal=True)
_PUT = load_script("tambomq.gomq.bulk", "move_put")


class InboundRecord(msgspec.Struct, frozen=True):
    """A message to be published to the target key."""

    id: str
    element: bytes
    old: str = ""
    """Its id under the source key, which the target stores; '' stores none."""


def take(key: str, id: str, run: str, journal: JournalPolicy | None = None) -> Call[MoveBatch]:
    """Take a batch of messages from a main queue; or return the batch in transit.

    If the key has a journal, the move is recorded there, within the bounds of *journal*.
    """
    found, bounds = JournalKeys("gomq", key), journal.bounds if journal else DEFAULT_BOUNDS
    hook = (found.journal, found.state, bounds.max_entries, bounds.max_bytes)
    call_keys = (keys.queue(key), keys.move(key, id), keys.transit(key, id))
    args = (run, MAX_MESSAGES, MAX_BYTES, *hook)
    return Call(_TAKE, call_keys, args, moves.batch, repeatable=True)


def put(
    key: str,
    query: str,
    number: int,
    checksum: str,
    messages: Sequence[InboundRecord],
    journal: JournalPolicy | None = None,
) -> Call[bool]:
    """Publish the messages of batch *number*; false if they were published before.

    With *journal* they are recorded; raises `JournalFull`, and publishes nothing.
    """
    words: list[Arg] = [number, checksum, KEEP_S]
    for each in messages:
        words += (each.id, each.old, each.element)
    call_keys = (keys.queue(key), keys.fence(key, query), keys.origins(key, query))
    call = Call(_PUT, call_keys, tuple(words), bool, repeatable=True)
    if journal is None:
        return call
    return record_publish(journal, call, {key: [each.element for each in messages]})
