"""Dead letters on their way back into a queue, as calls and plans nobody has made yet.

What a redrive is: `tambomq.store.redrives`. A message keeps its id, and is received as if for the
first time. It is in one of the two queues, never in both and never in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.errors import QueueError
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.recorded import recorded
from tambomq.rsmq.replies import existing, id_text
from tambomq.store import redrives
from tambomq.store.call import Arg, Call, Plan, load_script, results
from tambomq.store.redrives import CHUNK, KEEP_S, Moved, Redrive, Undone

_MOVE = load_script("tambomq.rsmq", "redrive_move")
_UNDO = load_script("tambomq.rsmq", "redrive_undo")


class Letter(msgspec.Struct, frozen=True):
    """What is kept of a dead letter beside its body."""

    id: str
    body: bytes | None = None
    """The new one; `None` for the old."""


def begin(keys: Keys, queue: str, told: Redrive) -> Call[Redrive]:
    """Begin *told*; or return the redrive that has its id already, as it is."""
    return redrives.begin(keys.redrives(queue), keys.redrive(queue, told.id), told)


def known(keys: Keys, queue: str) -> Plan[list[Redrive]]:
    """Return the redrives into a queue that are remembered, the oldest first."""
    return redrives.known(keys.redrives(queue), partial(keys.redrive, queue))


def settle(keys: Keys, queue: str, id: str, state: str) -> Call[bool]:
    """Say what has become of a redrive; false if it is undone, or forgotten."""
    return redrives.settle(keys.redrive(queue, id), state)


def move(keys: Keys, queue: str, told: Redrive, letters: Sequence[Letter]) -> Call[Moved]:
    """Let messages be received again; raise `QueueError` if the redrive was undone.

    Raises `JournalFull`, and moves none of them.
    """
    ledger = (keys.redrive(queue, told.id), keys.redriven(queue, told.id))
    receipts = (keys.receipts(queue), keys.receipts(told.dead))
    where = (*keys.of(queue), *keys.of(told.dead), *ledger, *receipts)
    words: list[Arg] = [KEEP_S]
    for letter in letters:
        words += (letter.id, int(letter.body is not None), letter.body or b"")
    call = Call(_MOVE, where, tuple(words), partial(_moved, queue, told.id), repeatable=True)
    # The script knows how much it is: of most letters only the server has the body.
    return recorded(keys, queue, call)


def undo(keys: Keys, queue: str, told: Redrive) -> Plan[Undone]:
    """Put back what nobody has received, with its reason and its bytes.

    Raises `QueueError` if nothing is known of such a redrive.
    """
    ledger = (keys.redrive(queue, told.id), keys.redriven(queue, told.id))
    where = (*keys.of(queue), *keys.of(told.dead), keys.queues, *ledger)
    after, total = "-", Undone()
    while after:
        args = (after, CHUNK, told.dead)
        call = Call(_UNDO, where, args, partial(_undone, queue, told.id), repeatable=True)
        after, some = results((yield (recorded(keys, queue, call),)))[0]
        total += some
    return total


def first_moved(keys: Keys, queue: str, id: str, count: int) -> Call[list[str]]:
    """Return the first messages that were moved and not put back."""
    args = ("-", "+", "COUNT", count)
    return Call("XRANGE", (keys.redriven(queue, id),), args, _ids, repeatable=True)


def reasons(keys: Keys, queue: str, ids: Sequence[bytes]) -> Call[list[bytes | None]]:
    """Return why each is in a dead-letter queue; `None` where nobody said."""
    fields = tuple(id + b":why" for id in ids)
    return Call("HMGET", (keys.of(queue)[1],), fields, list, repeatable=True)


def _moved(queue: str, id: str, reply: Any) -> Moved:
    if isinstance(found := existing(queue, reply), int):
        raise QueueError(queue, f"redrive {id!r} of queue {queue!r} was undone")
    return redrives.moved(found)


def _undone(queue: str, id: str, reply: Any) -> tuple[str, Undone]:
    if reply is None:
        raise QueueError(queue, f"queue {queue!r} knows of no redrive {id!r}")
    return redrives.undone(reply)


def _ids(rows: list[Any]) -> list[str]:
    return [id_text(fields[3]) for _, fields in rows]
