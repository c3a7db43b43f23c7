"""Whether rows that are written are recorded, too: the options for it, in all formats alike."""

from __future__ import annotations

from typing import Final

from tambomq.journal.recording import BOUNDS, Bounds
from tambomq.spark.options import Given

_FLAG, _ENTRIES, _BYTES = "journal", "journalMaxEntries", "journalMaxBytes"
JOURNAL: Final = (_FLAG, _ENTRIES, _BYTES)
_MOST: Final = (1 << 53) - 1


def journal_of(given: Given) -> Bounds | None:
    """Return how much the journals of the queues hold that are written to; `None` for none."""
    if given.flag(_FLAG, default=False):
        return Bounds(
            given.number(_ENTRIES, BOUNDS.max_entries, least=2, most=_MOST),
            given.number(_BYTES, BOUNDS.max_bytes, least=1024, most=_MOST),
        )
    for name in (_ENTRIES, _BYTES):
        if (value := given.text(name, None)) is not None:
            raise given.wrong(name, "left out unless journal is true", value)
    return None
