"""Calls and plans that read dead letters without their payloads, delete them, and restore them.

Deleted letters are kept aside for a while, so that a mistake can be undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tambomq.chasqui.keys import Keys
from tambomq.failures import headline
from tambomq.store.call import Arg, Call, Plan, load_script, results

PAGE: Final = 250
"""Dead letters per script: a script blocks the server."""
_LONGEST: Final = 2000
_RAN: Final = ("retries_exhausted", "unrecoverable")
"""Reasons of dead letters whose last run failed, which their envelope does not count."""

_LETTERS = load_script("tambomq.chasqui.bulk", "letters")
_DISCARD = load_script("tambomq.chasqui.bulk", "discard")
_RESTORE = load_script("tambomq.chasqui.bulk", "restore")


class LetterHead(msgspec.Struct, frozen=True):
    """A dead letter without its payload."""

    id: str
    """Its entry in the dead-letter stream."""
    job_id: str
    name: str
    reason: str
    error: str
    """Type and text of the error."""
    size: int
    runs: int | None
    """`None` if its envelope cannot be decoded."""

    @property
    def died_ms(self) -> int:
        """When it was written to the dead-letter stream."""
        return int(self.id.partition("-")[0])


def letters(keys: Keys, before: str = "+", count: int = PAGE) -> Call[list[LetterHead]]:
    """Return dead letters, the newest first, older than ``(<entry>``; ``+`` begins."""
    args = (before, min(count, PAGE), _LONGEST)
    return Call(_LETTERS, (keys.dlq,), args, _heads, repeatable=True)


def discard(keys: Keys, id: str, letters: Sequence[str], keep_s: int) -> Plan[int]:
    """Delete *letters*, keeping them aside under *id*; return how many were there."""
    count = 0
    for first in range(0, len(letters), PAGE):
        args: tuple[Arg, ...] = (keep_s, *letters[first : first + PAGE])
        call = Call(_DISCARD, (keys.dlq, keys.discarded(id)), args, int, repeatable=True)
        count += results((yield (call,)))[0]
    return count


def restore(keys: Keys, id: str) -> Plan[int]:
    """Move what was discarded under *id* back; return how many were still there."""
    count: int = 0
    while True:
        call = Call(_RESTORE, (keys.dlq, keys.discarded(id)), (PAGE,), int, repeatable=True)
        some: int = results((yield (call,)))[0]
        count += some
        if some < PAGE:
            return count


def _heads(rows: list[Any]) -> list[LetterHead]:
    return [_head(*row) for row in rows]


def _head(id: bytes, *fields: Any) -> LetterHead:
    *words, size, attempt = fields
    job_id, name, reason, kind, detail = (word.decode("utf-8", "replace") for word in words)
    runs = None if attempt < 0 else attempt + (reason in _RAN)
    return LetterHead(id.decode(), job_id, name, reason, headline(kind or None, detail), size, runs)
