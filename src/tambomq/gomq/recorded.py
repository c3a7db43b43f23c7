"""What is published, together with what the journals of some keys say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tambomq.errors import JournalFull
from tambomq.gomq import keys
from tambomq.gomq.wire import decode
from tambomq.journal.keys import Keys
from tambomq.journal.recording import Bounds, Recording, accounting
from tambomq.store.call import Arg, Call, load_script

_PUBLISH = accounting(load_script("tambomq.gomq", "publish_recorded"))


def push_recorded(recording: Recording, batches: Mapping[str, Sequence[bytes]]) -> Call[int]:
    """Append to several main queues and record what has a journal, or do nothing at all.

    Raises `JournalFull`.
    """
    bounds = recording.bounds
    words: list[Arg] = [bounds.max_entries, bounds.max_bytes]
    names: list[str] = []
    for key, elements in batches.items():
        found = recording.of(key)
        # A key without a journal has the names of one, and nothing is written there.
        journal = found or Keys(recording.protocol, key)
        names += (keys.queue(key), journal.journal, journal.state)
        words += (len(elements), *elements, len(elements) if found else 0)
        if found:
            for element in map(decode, elements):
                words += (element.id, element.payload)
    queues = list(batches)
    return Call(
        _PUBLISH,
        tuple(names),
        tuple(words),
        decode=lambda reply: _appended(queues, bounds, reply),
    )


def _appended(queues: Sequence[str], bounds: Bounds, reply: int) -> int:
    if reply < 0:
        raise JournalFull(queues[-reply - 1], bounds.max_entries, bounds.max_bytes)
    return reply
