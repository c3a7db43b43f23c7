"""Calls that move RSMQ messages from one queue to another (see `tambomq.bulk.moves`).

If the source queue has a journal, the departure of each message is recorded there. A full journal
never blocks a move.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.bulk import moves
from tambomq.bulk.moves import KEEP_S, MAX_BYTES, MAX_MESSAGES, MoveBatch
from tambomq.errors import MessageTooLong
from tambomq.ids import letters
from tambomq.journal.hooks import recorded
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalPolicy
from tambomq.rsmq.keys import ID_SUFFIX_LENGTH, Keys
from tambomq.rsmq.ops.journal import journal_keys
from tambomq.rsmq.ops.replies import require_queue
from tambomq.store.call import Arg, Call, load_script

_TAKE = load_script("tambomq.rsmq.bulk", "move_take", journal=True)
_PUT = load_script("tambomq.rsmq.bulk", "move_put")


class OutboundMessage(msgspec.Struct, frozen=True):
    """A message as it left its queue."""

    id: str
    body: bytes
    due_ms: int
    """When it would have become visible for the first time; 0 if it already was."""


class InboundMessage(msgspec.Struct, frozen=True):
    """A message to be sent to the target queue."""

    body: bytes
    delay_ms: int = 0
    old: str = ""
    """Its id in the source queue, which the target stores; '' stores none."""


def take(
    keys: Keys,
    queue: str,
    id: str,
    run: str,
    *,
    skip: int,
    later: bool,
    journal: JournalPolicy | None = None,
) -> Call[MoveBatch]:
    """Take a batch of messages that no consumer holds; or return the batch in transit.

    *later* selects messages that were sent with a delay. Raises `QueueNotFound`.
    """
    call_keys = (*keys.of(queue), keys.move(queue, id), keys.transit(queue, id))
    found, bounds = journal_keys(keys.ns, queue), journal.bounds if journal else DEFAULT_BOUNDS
    hook = (found.journal, found.state, bounds.max_entries, bounds.max_bytes)
    args = (run, MAX_MESSAGES, MAX_BYTES, skip, int(later), *hook)
    return Call(_TAKE, call_keys, args, partial(_batch, queue), repeatable=True)


def decode_outbound(row: tuple[bytes, bytes]) -> OutboundMessage:
    """Return the message in a row of a batch."""
    due, _, id = row[0].split(b" ", 2)
    return OutboundMessage(id.decode("utf-8", "replace"), row[1], int(due))


def put(
    keys: Keys,
    queue: str,
    query: str,
    number: int,
    checksum: str,
    messages: Sequence[InboundMessage],
    *,
    journal: JournalPolicy | None = None,
) -> Call[bool]:
    """Send the messages of batch *number*; false if they were sent before.

    Raises `MessageTooLong`, `QueueNotFound` or `JournalFull`, and sends nothing.
    """
    longest = max(len(each.body) for each in messages)
    delays = "".join(f"{each.delay_ms}," for each in messages)
    suffixes = letters(ID_SUFFIX_LENGTH * len(messages))
    words: list[Arg] = [number, checksum, KEEP_S, longest, delays, suffixes]
    for each in messages:
        words += (each.old, each.body)
    call_keys = (*keys.of(queue), keys.fence(queue, query), keys.origins(queue, query))
    call = Call(_PUT, call_keys, tuple(words), partial(_sent, queue, longest), repeatable=True)
    size = sum(len(each.body) for each in messages)
    return recorded(journal, queue, call, entries=len(messages), size=size)


def _batch(queue: str, reply: Any) -> MoveBatch:
    return moves.batch(require_queue(queue, reply))


def _sent(queue: str, longest: int, reply: Any) -> bool:
    if isinstance(reply, list):
        raise MessageTooLong(queue, longest, reply[0])
    return bool(require_queue(queue, reply))
