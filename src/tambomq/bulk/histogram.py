"""Groups dead letters by queue, reason, name and error. Pure: no Redis, no Spark, no clock."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

SAMPLES: Final = 3
"""Dead letters shown for each group, the newest."""
_LONGEST: Final = 200
MASKS: Final = (
    # In this order: quoted text may contain anything, URLs contain numbers, ids contain digits.
    (r"\"[^\"\n]*\"|(?<!\w)'[^'\n]*'|`[^`\n]*`", "'…'"),
    (r"(?i)\b[a-z][a-z0-9+.-]*://\S+", "<url>"),
    (r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b", "<mail>"),
    (r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "<id>"),
    (r"(?i)\b0x[0-9a-f]+\b", "<id>"),
    (r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{8,}\b", "<id>"),
    (r"(?<![\w.])[-+]?\d+(?:[.,:]\d+)*", "<n>"),
    (r"\d+", "<n>"),
    (r"\s+", " "),
)
"""The variable parts of error texts, as patterns that mean the same in Java and Python."""
_COMPILED: Final = [(re.compile(pattern), mask) for pattern, mask in MASKS]


class DeadLetterInfo(msgspec.Struct, frozen=True):
    """The fields of a dead letter that matter for grouping."""

    queue: str
    """As ``protocol:queue``."""
    id: str
    reason: str
    name: str
    detail: str
    """Type and text of the error."""
    at_ms: int
    traceback: str = ""


class DeadLetterGroup(msgspec.Struct):
    """Dead letters with the same queue, reason, name and shape of error."""

    queue: str
    reason: str
    name: str
    shape: str
    """The error text without its variable parts: see `shape`."""
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    samples: list[DeadLetterInfo] = []

    def add(self, letter: DeadLetterInfo) -> None:
        """Add a dead letter."""
        self.first_ms = min(self.first_ms, letter.at_ms) if self.count else letter.at_ms
        self.last_ms = max(self.last_ms, letter.at_ms)
        self.count += 1
        self.samples = sorted([letter, *self.samples], key=lambda each: -each.at_ms)[:SAMPLES]


def shape(detail: str) -> str:
    """Return *detail* with its variable parts masked: numbers, ids, quoted text."""
    # Longer text is a body or a traceback, and slow to match.
    text = detail[: 10 * _LONGEST]
    for pattern, mask in _COMPILED:
        text = pattern.sub(mask, text)
    text = text.strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def histogram(letters: Iterable[DeadLetterInfo]) -> list[DeadLetterGroup]:
    """Return the groups of *letters*, the largest first."""
    kinds: dict[tuple[str, str, str, str], DeadLetterGroup] = {}
    shapes: dict[str, str] = {}
    for letter in letters:
        if (like := shapes.get(letter.detail)) is None:
            like = shapes[letter.detail] = shape(letter.detail)
        key = (letter.queue, letter.reason, letter.name, like)
        if (kind := kinds.get(key)) is None:
            kind = kinds[key] = DeadLetterGroup(*key)
        kind.add(letter)
    return sorted(
        kinds.values(), key=lambda kind: (-kind.count, kind.queue, kind.reason, kind.name)
    )
