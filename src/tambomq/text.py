"""Texts for people: untrusted names made safe to print, and addresses as clients take them."""

from __future__ import annotations


def spelled_out(text: str) -> str:
    """Return *text* on one line, with unprintable characters escaped as in a Python literal.

    A queue name from Redis may contain line ends or terminal escapes: it must not forge a line.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def format_address(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def in_units(size: float) -> str:
    """Return a size in bytes as people read it: ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:  # noqa: PLR2004  (what these units are made of)
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
