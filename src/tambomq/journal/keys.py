"""Every key and field of the journal, and whose it may be. No other file spells one.

A journal is a stream of its own beside a queue. Its fields, all of them text but the last::

    e          what happened: ``sent`` and what else its writer knows
    id         the message's id; missing where the protocol has none
    ts         when, in milliseconds
    n          the name it was dispatched by, where there is one
    delay_ms   how long it was to wait, where it was
    d          the body

Readers ignore fields and events they do not know.
"""

from __future__ import annotations

import re
from typing import Final

from tambomq.errors import InvalidFormat

PROTOCOLS: Final = ("rsmq", "chasqui", "gomq", "kqueue")

SENT: Final = "sent"
EVENT, ID, AT, NAME, DELAY, BODY = b"e", b"id", b"ts", b"n", b"delay_ms", b"d"

_JOURNAL_OF: Final = re.compile(r"\{tambo:([a-z]+):(.+)\}:journal", re.DOTALL)


class Keys:
    """The keys of one queue's journal."""

    __slots__ = ("journal", "protocol", "queue")

    def __init__(self, protocol: str, queue: str) -> None:
        self.protocol, self.queue = check_protocol(protocol), check_queue(queue)
        self.journal = f"{{tambo:{protocol}:{queue}}}:journal"
        """Stream: what passed through."""


def any_of(protocol: str) -> str:
    """Return what matches the journals of all queues of *protocol*."""
    return f"{{tambo:{check_protocol(protocol)}:*}}:journal"


def queue_of(protocol: str, key: str) -> str | None:
    """Return the queue of *protocol* whose journal *key* is; only for finding journals."""
    match = _JOURNAL_OF.fullmatch(key)
    return match[2] if match and match[1] == protocol else None


def check_protocol(protocol: str) -> str:
    """Return *protocol* if there is such a one; raise `InvalidFormat` if not."""
    if protocol not in PROTOCOLS:
        raise InvalidFormat("protocol", protocol, f"one of {', '.join(PROTOCOLS)}")
    return protocol


def check_queue(queue: str) -> str:
    """Return *queue* if it may name one; raise `InvalidFormat` if not."""
    if not isinstance(queue, str) or not queue or not _is_text(queue):
        raise InvalidFormat("queue name", queue, "any text that is not empty")
    return queue


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
