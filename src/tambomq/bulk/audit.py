"""What an audit of any protocol says: which rule is broken where, and what mends it."""

from __future__ import annotations

import msgspec


class Rule(msgspec.Struct, frozen=True):
    """Something that holds for all keys of a protocol while nobody has damaged them."""

    name: str
    meaning: str
    """What it means that the rule is broken."""
    repair: str = ""
    """What mends it; empty where only a person can tell."""


class Finding(msgspec.Struct, frozen=True):
    """One place where a rule is broken."""

    rule: Rule
    queue: str
    key: str
    item: bytes = b""
    """The member, field, entry or element of the key; empty for the key itself."""
    told: str = ""
    """What stands there."""
    hints: tuple[str, ...] = ()
    """What its protocol wants to know to mend it."""

    @property
    def where(self) -> str:
        """The key and what of it, to be shown."""
        return f"{self.key} {shown(self.item)}" if self.item else self.key


_SHOWN = 80


def shown(item: bytes) -> str:
    """Return *item* as text of a bearable length."""
    text = item.decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(item)} bytes)"
