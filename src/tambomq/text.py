"""Text of strangers, made safe to show: a name from Redis must not forge a line."""

from __future__ import annotations


def spelled_out(text: str) -> str:
    """Return *text* on one line, with all that cannot be printed as Python would write it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
