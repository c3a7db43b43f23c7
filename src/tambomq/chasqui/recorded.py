"""What producers write into the journal of a queue that has one: each job that is added."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from tambomq.chasqui.keys import Keys
from tambomq.journal import keys as journal_keys
from tambomq.journal import recording
from tambomq.journal.recording import Bounds
from tambomq.store.call import Call, Script

_PACKAGE: Final = "tambomq.chasqui"


def recorded(
    keys: Keys, bounds: Bounds | None, call: Call[Any], *, entries: int, size: int
) -> Call[Any]:
    """Return *call*, of a script that adds jobs, or its twin if there are *bounds* of a journal.

    *entries* and *size*: jobs that it adds at most, and the bytes of their payloads.
    """
    if bounds is None:
        return call
    assert isinstance(call.verb, Script)  # noqa: S101  (all that add are)
    journal = journal_keys.Keys("chasqui", keys.queue)
    script = _twin(call.verb)
    return recording.recorded(call, script, journal, bounds, entries=entries, size=size)


@cache
def _twin(script: Script) -> Script:
    return recording.twin(script, _PACKAGE, "prefix", "journal_jobs")
