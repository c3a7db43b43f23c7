"""Calls and plans that return RSMQ dead letters to their queue (see `tambomq.bulk.redrives`).

A message keeps its id, and its receive count restarts at 0. Each script moves atomically, so a
message is always in exactly one of the two queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.bulk import redrives
from tambomq.bulk.redrives import CHUNK, KEEP_S, MoveResult, Redrive, UndoResult
from tambomq.errors import QueueError
from tambomq.journal.hooks import recorded
from tambomq.journal.policy import JournalPolicy
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops.replies import id_text, require_queue
from tambomq.store.call import Arg, Call, Plan, load_script, results

_MOVE = load_script("tambomq.rsmq.bulk", "redrive_move")
_UNDO = load_script("tambomq.rsmq.bulk", "redrive_undo")


class RedrivenMessage(msgspec.Struct, frozen=True):
    """A dead letter to be moved."""

    id: str
    body: bytes | None = None
    """The new body; `None` keeps the old one."""


def begin(keys: Keys, queue: str, redrive: Redrive) -> Call[Redrive]:
    """Store *redrive*, or return the one that is already stored with its id."""
    return redrives.begin(keys.redrives(queue), keys.redrive(queue, redrive.id), redrive)


def known(keys: Keys, queue: str) -> Plan[list[Redrive]]:
    """Return the stored redrives into a queue, the oldest first."""
    return redrives.known(keys.redrives(queue), partial(keys.redrive, queue))


def settle(keys: Keys, queue: str, id: str, state: str) -> Call[bool]:
    """Set the state of a redrive; false if it is undone, or no longer stored."""
    return redrives.settle(keys.redrive(queue, id), state)


def move(
    keys: Keys,
    queue: str,
    redrive: Redrive,
    letters: Sequence[RedrivenMessage],
    *,
    journal: JournalPolicy | None = None,
) -> Call[MoveResult]:
    """Move dead letters back to the queue.

    Raises `QueueError` if the redrive was undone, or `JournalFull`; then none is moved.
    """
    ledger = (keys.redrive(queue, redrive.id), keys.redriven(queue, redrive.id))
    receipts = (keys.receipts(queue), keys.receipts(redrive.dead))
    call_keys = (*keys.of(queue), *keys.of(redrive.dead), *ledger, *receipts)
    words: list[Arg] = [KEEP_S]
    for letter in letters:
        words += (letter.id, int(letter.body is not None), letter.body or b"")
    decode = partial(_moved, queue, redrive.id)
    call = Call(_MOVE, call_keys, tuple(words), decode, repeatable=True)
    # The script computes the size: most bodies are only on the server.
    return recorded(journal, queue, call)


def undo(
    keys: Keys, queue: str, redrive: Redrive, *, journal: JournalPolicy | None = None
) -> Plan[UndoResult]:
    """Move messages that no consumer has received back, with their original bytes and reason.

    Raises `QueueError` if no such redrive is stored.
    """
    ledger = (keys.redrive(queue, redrive.id), keys.redriven(queue, redrive.id))
    call_keys = (*keys.of(queue), *keys.of(redrive.dead), keys.queues, *ledger)
    after, total = "-", UndoResult()
    while after:
        args = (after, CHUNK, redrive.dead)
        decode = partial(_undone, queue, redrive.id)
        call = Call(_UNDO, call_keys, args, decode, repeatable=True)
        after, some = results((yield (recorded(journal, queue, call),)))[0]
        total += some
    return total


def first_moved(keys: Keys, queue: str, id: str, count: int) -> Call[list[str]]:
    """Return the ids of the first messages that were moved and not moved back."""
    args = ("-", "+", "COUNT", count)
    return Call("XRANGE", (keys.redriven(queue, id),), args, _ids, repeatable=True)


def reasons(keys: Keys, queue: str, ids: Sequence[bytes]) -> Call[list[bytes | None]]:
    """Return the stored reason of each dead letter; `None` where there is none."""
    fields = tuple(id + b":why" for id in ids)
    return Call("HMGET", (keys.of(queue)[1],), fields, list, repeatable=True)


def _moved(queue: str, id: str, reply: Any) -> MoveResult:
    if isinstance(found := require_queue(queue, reply), int):
        raise QueueError(queue, f"redrive {id!r} of queue {queue!r} was undone")
    return redrives.moved(found)


def _undone(queue: str, id: str, reply: Any) -> tuple[str, UndoResult]:
    if reply is None:
        raise QueueError(queue, f"queue {queue!r} has no redrive {id!r}")
    return redrives.undone(reply)


def _ids(rows: list[Any]) -> list[str]:
    return [id_text(fields[3]) for _, fields in rows]
