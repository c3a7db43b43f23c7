"""Sending in chunks that are sent once, as calls nobody has made yet.

A chunk and the token that says it was written are one script: whoever sends the chunk again, after
whatever went wrong, sends nothing. So each call may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tambomq.errors import MessageTooLong
from tambomq.ids import letters
from tambomq.rsmq.keys import ID_SUFFIX_LENGTH, Keys
from tambomq.rsmq.recorded import recorded
from tambomq.rsmq.replies import existing
from tambomq.store.call import Arg, Call, load_script

_SEND = load_script("tambomq.rsmq", "sink_send")


def send(
    keys: Keys,
    queue: str,
    query: str,
    mark: Sequence[Arg],
    bodies: Sequence[bytes],
    delays: Sequence[float | None] = (),
) -> Call[int]:
    """Put *bodies* on a queue unless *mark* says they are there: 1, or 0 if they were before.

    *mark* is the batch, the chunk's token and digest, and how many seconds to keep these; -1 means
    that another digest was kept, -2 that the batch is over. Without *delays*, the queue's own.
    Raises `JournalFull`, and sends nothing.
    """
    longest = max(map(len, bodies))
    waits = "".join(f"{'' if each is None else each}," for each in delays)
    args = (*mark, longest, waits, letters(ID_SUFFIX_LENGTH * len(bodies)), *bodies)
    where = (*keys.of(queue), keys.fence(queue, query))
    call = Call(_SEND, where, args, partial(_sent, queue, longest), repeatable=True)
    return recorded(keys, queue, call, entries=len(bodies), size=sum(map(len, bodies)))


def longest(keys: Keys, queue: str) -> Call[int | None]:
    """Return how many bytes a body may have, -1 for any; `None` if there is no such queue."""
    fields = ("vt", "maxsize")
    return Call("HMGET", (keys.of(queue)[1],), fields, decode=_longest, repeatable=True)


def _sent(queue: str, longest: int, reply: Any) -> int:
    if isinstance(reply, list):
        raise MessageTooLong(queue, longest, reply[0])
    return int(existing(queue, reply))


def _longest(reply: list[bytes | None]) -> int | None:
    vt, maxsize = reply
    if vt is None:
        return None
    # What is no number is found, and told, by who sends.
    return int(maxsize) if maxsize and maxsize.isdigit() else -1
