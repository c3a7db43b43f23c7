"""Decoders for what all RSMQ scripts reply alike.

Nil means that there is no such queue, a string says how the queue is damaged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from tambomq.errors import QueueCorrupt, QueueFull, QueueNotFound

T = TypeVar("T")

FULL: Final = b"BOUND_REACHED"
"""The first element of the reply of a script that a queue's bounds do not let store."""

# Beyond this, a float (and so a score) cannot represent every integer.
_MAX_EXACT = 2**53
_ESCAPE: Final = re.compile(rb"\\(\\|x[0-9a-f]{2})")


def require_queue(queue: str, reply: T | None) -> T:
    """Return the reply of a script; raise `QueueNotFound` or `QueueCorrupt` if it is one."""
    if reply is None:
        raise QueueNotFound(queue)
    if isinstance(reply, bytes):
        raise QueueCorrupt(queue, reply.decode("utf-8", "replace"))
    return reply


def queue_full(queue: str, reply: Sequence[Any]) -> QueueFull:
    """Return the error of a *reply* that begins with `FULL`."""
    _, bound, limit, held = reply
    return QueueFull(queue, limit, bound=bound.decode(), held=held)


def score_to_ms(score: bytes) -> int:
    """Return a score as epoch milliseconds, clamped to ±2**53."""
    return int(max(-_MAX_EXACT, min(float(score), _MAX_EXACT)))


def to_count(value: bytes | None) -> int:
    """Return a counter stored with a message; 0 if it is missing or not a number."""
    return int(value) if value and value.isdigit() else 0


def id_text(stored: bytes) -> str:
    r"""Return an id as text; bytes that are not UTF-8 become escapes such as ``\xff``.

    `id_arg` restores the bytes, so a message can be deleted whatever its id is.
    """
    try:
        text = stored.decode()
    except UnicodeDecodeError:
        text = "\\"
    if "\\" not in text:
        return text
    return stored.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def id_arg(id: str) -> str | bytes:
    """Return the stored form of an id that `id_text` has made."""
    if "\\" not in id:
        return id
    return _ESCAPE.sub(_byte, id.encode())


def _byte(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return code if code == b"\\" else bytes.fromhex(code[1:].decode())
