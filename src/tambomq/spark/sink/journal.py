"""The journal options of a write, the same in all formats: whether rows are recorded too."""

from __future__ import annotations

from typing import Final

from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds, JournalPolicy
from tambomq.spark.core.options import SourceOptions

_FLAG, _ENTRIES, _BYTES = "journal", "journalMaxEntries", "journalMaxBytes"
JOURNAL: Final = (_FLAG, _ENTRIES, _BYTES)
_MAX: Final = (1 << 53) - 1


def journal_of(options: SourceOptions, protocol: str) -> JournalPolicy | None:
    """Return the policy by which all queues that are written to have a journal; `None` for none."""
    if bounds := bounds_of(options):
        return JournalPolicy(protocol, ("*",), bounds)
    return None


def bounds_of(options: SourceOptions) -> JournalBounds | None:
    """Return the bounds of the journals that the options ask for; `None` for no journals."""
    if options.flag(_FLAG, default=False):
        return JournalBounds(
            options.number(_ENTRIES, DEFAULT_BOUNDS.max_entries, min_value=2, max_value=_MAX),
            options.number(_BYTES, DEFAULT_BOUNDS.max_bytes, min_value=1024, max_value=_MAX),
        )
    for name in (_ENTRIES, _BYTES):
        if (value := options.text(name, None)) is not None:
            raise options.wrong(name, "left out unless journal is true", value)
    return None
