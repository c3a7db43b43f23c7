"""Calls of GOMQ that write into the journals of keys.

A publish is recorded or not done. `delivered` is recorded by the script that removes the message.
A full journal never blocks a delivery: skipped entries are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from tambomq.gomq.ops.messages import push_all
from tambomq.gomq.wire import decode, is_message
from tambomq.journal.hooks import unless_full
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalPolicy
from tambomq.store.call import Arg, Call, Script, journalled

T = TypeVar("T")

# The script finds out itself which keys' journals it needs, so it gets the parts of their names.
_ANY: Final = JournalKeys("gomq", "*")
_JOURNALS, _JOURNAL_END = _ANY.journal.split("*")
_STATE_END: Final = _ANY.state.removeprefix(_JOURNALS + "*")


def push_recorded(journal: JournalPolicy, batches: Mapping[str, Sequence[bytes]]) -> Call[int]:
    """Append to several main queues and record what has a journal, or do nothing at all.

    Raises `JournalFull`.
    """
    return record_publish(journal, push_all(batches), batches)


def record_publish(
    journal: JournalPolicy, call: Call[T], batches: Mapping[str, Sequence[bytes]]
) -> Call[T]:
    """Return *call*, which appends *batches* to main queues, as one that records them.

    It records messages of keys with a journal, or raises `JournalFull` and appends nothing.
    """
    assert isinstance(call.verb, Script)  # noqa: S101  (only scripts have hooks)
    bounds = journal.bounds
    journals: list[str] = []
    entries: list[Arg] = []
    counts: list[Arg] = []
    for place, (key, elements) in enumerate(batches.items(), 1):
        if found := journal.of(key):
            journals += (found.journal, found.state)
            counts += (place, len(elements))
            for element in elements:
                entries += _entry(element)
    return Call(
        journalled(call.verb),
        (*call.keys, *journals),
        (*call.args, *entries, *counts, len(counts) // 2, bounds.max_entries, bounds.max_bytes),
        partial(unless_full, list(batches), bounds, call.decode),
        call.repeatable,
    )


def record_deliveries(journal: JournalPolicy | None, call: Call[T], consumer: str) -> Call[T]:
    """Return *call*, by which *consumer* observes or unsubscribes, as one that records deliveries.

    Messages that are popped count as delivered, and so does a batch that is acknowledged. Without
    a *journal* it is the same call.
    """
    if journal is None:
        return call
    assert isinstance(call.verb, Script)  # noqa: S101  (all that deliver are)
    bounds = journal.bounds
    pieces = (_JOURNALS, _JOURNAL_END, _STATE_END)
    return Call(
        journalled(call.verb),
        call.keys,
        (*call.args, consumer, *pieces, bounds.max_entries, bounds.max_bytes),
        call.decode,
        call.repeatable,
    )


def _entry(element: bytes) -> tuple[str, bytes]:
    """Return the id and the payload of a message; for anything else, all of its bytes."""
    found = decode(element)
    return found.id, found.payload if found.id or is_message(element) else element
