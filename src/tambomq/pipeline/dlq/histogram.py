"""Dead letters, counted by what they died of. Values: no Redis, no Spark, no clock."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

SAMPLES: Final = 3
"""So many letters of a kind are named, the newest."""
_LONGEST: Final = 200
MASKS: Final = (
    # In this order: what stands in quotes may be anything, an address has numbers in it, and an id
    # is made of digits as well.
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
"""What differs from one error to the next of its kind; patterns that Java reads as Python does."""
_COMPILED: Final = [(re.compile(pattern), mask) for pattern, mask in MASKS]


class Letter(msgspec.Struct, frozen=True):
    """A dead letter, as far as it is counted."""

    queue: str
    """With its protocol."""
    id: str
    reason: str
    name: str
    detail: str
    """Type and text of the error."""
    at_ms: int
    traceback: str = ""


class Kind(msgspec.Struct):
    """Letters that died of the same."""

    queue: str
    reason: str
    name: str
    shape: str
    """What their details have in common."""
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    samples: list[Letter] = []

    def add(self, letter: Letter) -> None:
        """Count one more."""
        self.first_ms = min(self.first_ms, letter.at_ms) if self.count else letter.at_ms
        self.last_ms = max(self.last_ms, letter.at_ms)
        self.count += 1
        self.samples = sorted([letter, *self.samples], key=lambda each: -each.at_ms)[:SAMPLES]


def shape(detail: str) -> str:
    """Return *detail* with what differs from case to case left out: numbers, ids, quotations."""
    # Longer than this, it is a body or a traceback that somebody put there, and slow to read.
    text = detail[: 10 * _LONGEST]
    for pattern, mask in _COMPILED:
        text = pattern.sub(mask, text)
    text = text.strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def histogram(letters: Iterable[Letter]) -> list[Kind]:
    """Return the kinds of *letters*, the most frequent first."""
    kinds: dict[tuple[str, str, str, str], Kind] = {}
    shapes: dict[str, str] = {}
    for letter in letters:
        if (like := shapes.get(letter.detail)) is None:
            like = shapes[letter.detail] = shape(letter.detail)
        key = (letter.queue, letter.reason, letter.name, like)
        if (kind := kinds.get(key)) is None:
            kind = kinds[key] = Kind(*key)
        kind.add(letter)
    return sorted(
        kinds.values(), key=lambda kind: (-kind.count, kind.queue, kind.reason, kind.name)
    )
