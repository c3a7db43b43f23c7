"""What all RSMQ scripts answer alike.

Nil: there is no such queue. A string: what is wrong with the one there is.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

from tambomq.errors import QueueCorrupt, QueueNotFound

T = TypeVar("T")

# Beyond this a float, and so a score, no longer tells one integer from the next.
_FOREVER = 2**53
_ESCAPE: Final = re.compile(rb"\\(\\|x[0-9a-f]{2})")


def existing(queue: str, reply: T | None) -> T:
    """Return the reply of a script; raise `QueueNotFound` or `QueueCorrupt` if it says so."""
    if reply is None:
        raise QueueNotFound(queue)
    if isinstance(reply, bytes):
        raise QueueCorrupt(queue, reply.decode("utf-8", "replace"))
    return reply


def moment(score: bytes) -> int:
    """Return the millisecond a score stands for; what no clock shows becomes 2**53 either way."""
    return int(max(-_FOREVER, min(float(score), _FOREVER)))


def tally(value: bytes | None) -> int:
    """Return a count kept with a message; 0 if there is none, or it is no number."""
    return int(value) if value and value.isdigit() else 0


def id_text(stored: bytes) -> str:
    r"""Return an id as text; bytes that are none have escapes such as ``\xff``.

    `id_arg` finds the bytes again, so a message can be deleted whatever its id is.
    """
    try:
        text = stored.decode()
    except UnicodeDecodeError:
        text = "\\"
    if "\\" not in text:
        return text
    return stored.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def id_arg(id: str) -> str | bytes:
    """Return an id, as `id_text` shows it, for a command."""
    if "\\" not in id:
        return id
    return _ESCAPE.sub(_byte, id.encode())


def _byte(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return code if code == b"\\" else bytes.fromhex(code[1:].decode())
