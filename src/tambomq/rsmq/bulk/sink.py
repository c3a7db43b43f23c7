"""Calls that send chunks of RSMQ messages, each chunk once.

One script writes a chunk and stores the chunk's token. A chunk whose token is already stored is not
written again, so each call may be repeated after any failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tambomq.errors import MessageTooLong
from tambomq.ids import letters
from tambomq.journal.hooks import recorded
from tambomq.journal.policy import JournalPolicy
from tambomq.rsmq.keys import ID_SUFFIX_LENGTH, Keys
from tambomq.rsmq.ops.replies import FULL, queue_full, require_queue
from tambomq.store.call import Arg, Call, load_script

_SEND = load_script("tambomq.rsmq.bulk", "sink_send")


def send(
    keys: Keys,
    queue: str,
    query: str,
    chunk_token: Sequence[Arg],
    bodies: Sequence[bytes],
    delays: Sequence[float | None] = (),
    *,
    journal: JournalPolicy | None = None,
) -> Call[int]:
    """Send *bodies* as one chunk; 1, or 0 if the chunk was sent before.

    *chunk_token* is the batch number, the chunk's token and digest, and how many seconds to keep
    them. -1 means that the token is stored with another digest, -2 that the batch is closed.
    Without *delays*, the queue's own delay applies. Raises `JournalFull` or `QueueFull`, and sends
    nothing.
    """
    longest = max(map(len, bodies))
    waits = "".join(f"{'' if each is None else each}," for each in delays)
    args = (*chunk_token, longest, waits, letters(ID_SUFFIX_LENGTH * len(bodies)), *bodies)
    call_keys = (*keys.of(queue), keys.fence(queue, query), keys.bounds(queue))
    call = Call(_SEND, call_keys, args, partial(_sent, queue, longest), repeatable=True)
    return recorded(journal, queue, call, entries=len(bodies), size=sum(map(len, bodies)))


def longest(keys: Keys, queue: str) -> Call[int | None]:
    """Return the queue's limit of bytes per body, -1 for none; `None` if there is no such queue."""
    fields = ("vt", "maxsize")
    return Call("HMGET", (keys.of(queue)[1],), fields, decode=_longest, repeatable=True)


def _sent(queue: str, longest: int, reply: Any) -> int:
    if isinstance(reply, list) and reply[0] == FULL:
        raise queue_full(queue, reply)
    if isinstance(reply, list):
        raise MessageTooLong(queue, longest, reply[0])
    return int(require_queue(queue, reply))


def _longest(reply: list[bytes | None]) -> int | None:
    vt, maxsize = reply
    if vt is None:
        return None
    # The script that sends reports a limit that is not a number.
    return int(maxsize) if maxsize and maxsize.isdigit() else -1
