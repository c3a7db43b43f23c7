"""Calls that publish chunks of GOMQ messages, each chunk once.

One script appends a chunk and stores the chunk's token. A chunk whose token is already stored is
not appended again, so each call may be repeated after any failure. Servers find the messages when
they next poll the main queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from tambomq.gomq import keys
from tambomq.gomq.ops.journal import record_publish
from tambomq.journal.policy import JournalPolicy
from tambomq.store.call import Arg, Call, load_script

_PUSH = load_script("tambomq.gomq.bulk", "sink_push")


def push(
    key: str,
    query: str,
    chunk_token: Sequence[Arg],
    elements: Sequence[bytes],
    journal: JournalPolicy | None = None,
) -> Call[int]:
    """Append *elements* to the main queue as one chunk; 1, or 0 if it was appended before.

    *chunk_token* is the batch number, the chunk's token and digest, and how many seconds to keep
    them. -1 means that the token is stored with another digest, -2 that the batch is closed. With
    *journal* they are recorded; raises `JournalFull`, and appends nothing.
    """
    call_keys = (keys.queue(key), keys.fence(key, query))
    call = Call(_PUSH, call_keys, (*chunk_token, *elements), decode=int, repeatable=True)
    if journal is None:
        return call
    return record_publish(journal, call, {key: elements})
