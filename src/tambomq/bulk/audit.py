"""Rules and findings of an audit: which rule a key breaks, and what repairs it."""

from __future__ import annotations

import msgspec


class Rule(msgspec.Struct, frozen=True):
    """An invariant of a protocol's keys."""

    name: str
    meaning: str
    """What a violation means."""
    repair: str = ""
    """What a repair does; empty where there is no automatic repair."""


class Finding(msgspec.Struct, frozen=True):
    """One violation of a rule."""

    rule: Rule
    queue: str
    key: str
    item: bytes = b""
    """The member, field, entry or element of the key; empty for the key itself."""
    detail: str = ""
    """What was found there."""
    hints: tuple[str, ...] = ()
    """What the protocol needs to repair it."""

    @property
    def location(self) -> str:
        """The key and the item in it, for display."""
        return f"{self.key} {shown(self.item)}" if self.item else self.key


_SHOWN = 80


def shown(item: bytes) -> str:
    """Return *item* as text, shortened for display."""
    text = item.decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(item)} bytes)"
