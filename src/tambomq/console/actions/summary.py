"""Summaries and selections of dead letters: what died of what. Pure: no Redis, no clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final

from tambomq.bulk.histogram import DeadLetterInfo, histogram, shape
from tambomq.console.actions.letter_boxes import Letter
from tambomq.console.actions.model import DeadLetterSummary, LetterGroup, LetterSelector
from tambomq.console.model import Series

MINUTES: Final = 60
_MINUTE_MS: Final = 60_000
_ID_CHARS: Final = 16


def group_id(queue: str, reason: str, name: str, like: str) -> str:
    """Return the id of a group: the same for the same kind of letters, in every process."""
    text = f"{queue}\0{reason}\0{name}\0{like}"
    return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_ID_CHARS]


def summarise(
    letters: Sequence[Letter], counts: dict[str, int], now_ms: int, *, cut_off: bool
) -> DeadLetterSummary:
    """Return the groups of *letters*; *counts* are all letters by queue, looked at or not."""
    groups = [
        LetterGroup(
            id=group_id(each.queue, each.reason, each.name, each.shape),
            queue=each.queue,
            reason=each.reason,
            shape=each.shape,
            name=each.name or None,
            count=each.count,
            first_ms=each.first_ms,
            last_ms=each.last_ms,
        )
        for each in histogram(map(_info, letters))
    ]
    reasons = Counter(each.reason for each in letters)
    return DeadLetterSummary(
        at_ms=now_ms,
        total=sum(counts.values()),
        by_queue={queue: count for queue, count in counts.items() if count},
        by_reason=dict(reasons.most_common()),
        groups=groups,
        per_minute=_per_minute(letters, now_ms),
        looked_at=len(letters),
        cut_off=cut_off,
    )


def matcher(selector: LetterSelector) -> Callable[[Letter], bool]:
    """Return whether a letter is meant by *selector*; an empty one means all of its queue."""
    groups, reasons, ids = set(selector.groups), set(selector.reasons), set(selector.ids)
    find = selector.find.casefold()
    shapes: dict[str, str] = {}

    def matches(letter: Letter) -> bool:
        if ids and letter.id not in ids and letter.message_id not in ids:
            return False
        if reasons and letter.reason not in reasons:
            return False
        if groups:
            if (like := shapes.get(letter.error)) is None:
                like = shapes[letter.error] = shape(letter.error)
            if group_id(letter.queue, letter.reason, letter.name, like) not in groups:
                return False
        return not find or any(
            find in text.casefold() for text in (letter.message_id, letter.name, letter.error)
        )

    return matches


def _info(letter: Letter) -> DeadLetterInfo:
    return DeadLetterInfo(
        letter.queue, letter.id, letter.reason, letter.name, letter.error, letter.died_ms
    )


def _per_minute(letters: Iterable[Letter], now_ms: int) -> Series:
    first = now_ms // _MINUTE_MS - MINUTES + 1
    deaths: dict[str, list[float | None]] = defaultdict(lambda: [0.0] * MINUTES)
    for letter in letters:
        minute = letter.died_ms // _MINUTE_MS - first
        if 0 <= minute < MINUTES:
            line = deaths[letter.reason]
            line[minute] = (line[minute] or 0.0) + 1
    return Series(
        times_ms=[(first + minute) * _MINUTE_MS for minute in range(MINUTES)], values=dict(deaths)
    )
