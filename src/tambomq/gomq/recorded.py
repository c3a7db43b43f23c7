"""What GOMQ's operations write into the journals of the keys that have one.

A publish is recorded or not done. That a message has arrived is told in the step that lets go of
it, and never a reason to keep it back: what a full journal cannot take of that is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from tambomq.errors import JournalFull
from tambomq.gomq import keys
from tambomq.gomq.wire import decode
from tambomq.journal.keys import Keys
from tambomq.journal.recording import Bounds, Recording, accounting
from tambomq.store.call import Arg, Call, Script, load_script

T = TypeVar("T")


def _twin(name: str, *parts: str) -> Script:
    return accounting(load_script("tambomq.gomq", name, *parts), "tell")


_PUBLISH: Final = accounting(load_script("tambomq.gomq", "publish_recorded"))
# As in `ops`, with what tells behind what it looks at.
_TOLD = ("message_id", "told")
_TELLING: Final = {
    script.name: script
    for script in (
        _twin(
            "observe",
            "join",
            "put_back",
            "kept",
            *_TOLD,
            "unhand",
            "take",
            "told_popped",
            "release",
        ),
        _twin("observe_kept", "join", "put_back", "kept", *_TOLD, "take", "release"),
        _twin("unsubscribe", "kept", "number", *_TOLD),
    )
}

# Only the script finds out whose journals it needs.
_ANY: Final = Keys("gomq", "*")
_JOURNALS, _JOURNAL_END = _ANY.journal.split("*")
_STATE_END: Final = _ANY.state.removeprefix(_JOURNALS + "*")


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


def told(recording: Recording | None, call: Call[T], consumer: str, acked: str) -> Call[T]:
    """Return *call*, by which *consumer* observes or unsubscribes, as one that tells of arrivals.

    What is popped has arrived, and so has the batch that is *acked*. Without a *recording* it is
    the same call.
    """
    if recording is None:
        return call
    assert isinstance(call.verb, Script)  # noqa: S101  (it is one of those above)
    bounds = recording.bounds
    where = (_JOURNALS, _JOURNAL_END, _STATE_END)
    return Call(
        _TELLING[call.verb.name],
        call.keys,
        (*call.args, consumer, acked, *where, bounds.max_entries, bounds.max_bytes),
        call.decode,
        call.repeatable,
    )


def _appended(queues: Sequence[str], bounds: Bounds, reply: int) -> int:
    if reply < 0:
        raise JournalFull(queues[-reply - 1], bounds.max_entries, bounds.max_bytes)
    return reply
