"""What is written into the journal of a queue that has one: each job that is stored there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire import decode_envelope
from tambomq.errors import RemoteProtocolError
from tambomq.journal import keys as journal_keys
from tambomq.journal import recording
from tambomq.journal.recording import Bounds
from tambomq.store.call import Arg, Call, Script

_PACKAGE: Final = "tambomq.chasqui"
_ADDS: Final = ("prefix", "journal_job", "journal_jobs")
# Jobs of others may have forms that only `decode_envelope` reads.
_OTHERS: Final = {
    "move_put": ("journal_job", "journal_moved"),
    "redrive_move": ("journal_job", "journal_redriven"),
}


def recorded(
    keys: Keys,
    bounds: Bounds | None,
    call: Call[Any],
    *,
    entries: int,
    size: int,
    extra: Sequence[Arg] | None = None,
) -> Call[Any]:
    """Return *call*, of a script that adds jobs, or its twin if there are *bounds* of a journal.

    *entries* and *size*: jobs that it adds at most, and the bytes of their payloads. *extra* is
    for jobs of others: what the twin is to record of each.
    """
    if bounds is None:
        return call
    assert isinstance(call.verb, Script)  # noqa: S101  (all that add are)
    journal = journal_keys.Keys("chasqui", keys.queue)
    call = msgspec.structs.replace(call, keys=(*call.keys, keys.stream, keys.delayed))
    return recording.recorded(
        call, _twin(call.verb), journal, bounds, entries=entries, size=size, extra=extra
    )


def payload_of(envelope: bytes) -> bytes:
    """Return a job's data; of what is no job, all of it."""
    try:
        return decode_envelope(envelope).payload
    except RemoteProtocolError:
        return envelope


@cache
def _twin(script: Script) -> Script:
    if script.name in _OTHERS:
        return recording.twin(script, _PACKAGE, *_OTHERS[script.name], extra=True)
    return recording.twin(script, _PACKAGE, *_ADDS)
