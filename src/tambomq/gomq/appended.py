"""What the journal of a key says of messages that no server was sent: written rows, and moves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, TypeVar

from tambomq.gomq import wire
from tambomq.journal import recording
from tambomq.journal.keys import Keys
from tambomq.journal.recording import Bounds
from tambomq.store.call import Arg, Call, Script

T = TypeVar("T")

_PACKAGE: Final = "tambomq.gomq"


def appended(key: str, journal: Bounds | None, call: Call[T], elements: Sequence[bytes]) -> Call[T]:
    """Return *call*, which appends *elements*, or its twin if *journal* says how much it holds."""
    if journal is None:
        return call
    assert isinstance(call.verb, Script)  # noqa: S101  (both that append are)
    told: list[Arg] = []
    size = 0
    for element in elements:
        found = wire.decode(element)
        # What is no message passes through too, and is told as it is.
        payload = found.payload if wire.is_message(element) else element
        told += (found.id, payload)
        size += len(payload)
    keys, script = Keys("gomq", key), _twin(call.verb)
    return recording.recorded(
        call, script, keys, journal, entries=len(elements), size=size, extra=told
    )


@cache
def _twin(script: Script) -> Script:
    return recording.twin(script, _PACKAGE, "journal_appended", extra=True)
