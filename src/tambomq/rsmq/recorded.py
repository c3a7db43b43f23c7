"""What RSMQ's operations write into the journal of a queue that has one.

A send, by whomever, is recorded or not done. A receive, a deletion and a burial are done in any
case: what a full journal cannot take of them is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final, TypeVar

from tambomq.journal import recording
from tambomq.journal.keys import Keys as JournalKeys
from tambomq.journal.recording import Bounds, Recording
from tambomq.rsmq.keys import NAMESPACE, Keys, check_queue
from tambomq.store.call import Call, Script

T = TypeVar("T")

_PACKAGE: Final = "tambomq.rsmq"
_PARTS: Final = {
    "send": ("journal_sent",),
    "receive": ("journal_received",),
    "receive_one": ("journal_received",),
    "pop": ("journal_popped",),
    "delete": ("journal_deleted",),
    "delete_one": ("journal_deleted",),
    "bury": ("journal_dead",),
    "sink_send": ("journal_stored",),
    "move_put": ("journal_stored",),
    "redrive_move": ("journal_stored", "journal_redriven"),
    "redrive_undo": ("journal_undone",),
}


def recording_keys(ns: str, journal: Iterable[str], bounds: Bounds) -> Keys:
    """Return the keys of *ns*, where queues that match *journal* have one."""
    found = Recording("rsmq", journal, bounds, within=_within(ns))
    return Keys(ns, found if found.patterns else None)


def keys_of(ns: str, queue: str, bounds: Bounds | None) -> Keys:
    """Return the keys of *ns*, where *queue* has a journal if there are *bounds* of one."""
    return Keys(ns) if bounds is None else recording_keys(ns, (check_queue(queue),), bounds)


def journal_keys(ns: str, queue: str) -> JournalKeys:
    """Return the keys of the journal that a queue of *ns* has, or would have."""
    return JournalKeys("rsmq", _within(ns) + queue)


def recorded(keys: Keys, queue: str, call: Call[T], *, entries: int = 0, size: int = 0) -> Call[T]:
    """Return *call*, of one of our scripts, or its twin if *queue* has a journal.

    *entries* and *size*: messages that it stores, and the bytes of their bodies.
    """
    if keys.recording is None or (journal := keys.recording.of(queue)) is None:
        return call
    assert isinstance(call.verb, Script)  # noqa: S101  (it is one of those above)
    bounds = keys.recording.bounds
    script = _twin(call.verb)
    return recording.recorded(call, script, journal, bounds, entries=entries, size=size)


def _within(ns: str) -> str:
    """Two namespaces may have queues of the same name; only the usual one is not told."""
    return "" if ns == NAMESPACE else f"{ns}:"


@cache
def _twin(script: Script) -> Script:
    return recording.twin(script, _PACKAGE, *_PARTS[script.name])
