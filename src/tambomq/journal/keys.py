"""Every key and field of the journal, and whose it may be. No other file spells one.

A journal is a stream of its own beside a queue. Its fields, in any order, all text but the last::

    e          what happened: ``sent`` and what else its writer knows
    id         the message's id; missing where the protocol has none
    ts         when, in milliseconds
    n          the name it was dispatched by, where there is one; or, of a ``delivered`` one, the
               consumer
    delay_ms   how long it was to wait, where it was
    a          which receive of the message it was, from 1 on
    to         how many it went to, where that is known
    r          why the message is dead
    o          bytes of all entries up to this one, as the bounds count them
    d          the body

Readers ignore fields and events they do not know. Beside it lies a hash::

    bytes gone               what was ever recorded, and what of it is not kept any more
    refused dropped          sends that were refused, and events that were not recorded
    committed:<reader>       the last entry a reader needs no more
    read:<reader>            bytes of all entries up to that one

The scripts spell the fields too; a field that changes here changes there.
"""

from __future__ import annotations

import re
from typing import Final

from tambomq.errors import InvalidFormat

PROTOCOLS: Final = ("rsmq", "chasqui", "gomq", "kqueue")

SENT = "sent"
EVENT, ID, AT, NAME, DELAY, BODY = b"e", b"id", b"ts", b"n", b"delay_ms", b"d"
ATTEMPT, TARGETS, REASON = b"a", b"to", b"r"

BYTES, GONE, REFUSED, DROPPED = b"bytes", b"gone", b"refused", b"dropped"
COMMITTED, READ = b"committed:", b"read:"

ANY: Final = "{tambo:*}:journal"
"""Matches the journals of all queues."""

_JOURNAL_OF: Final = re.compile(r"\{tambo:([a-z]+):(.+)\}:journal", re.DOTALL)
_ENTRY_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)
_READER: Final = re.compile(r"[A-Za-z0-9_.-]{1,160}", re.ASCII)


class Keys:
    """The keys of one queue's journal."""

    __slots__ = ("journal", "protocol", "queue", "state")

    def __init__(self, protocol: str, queue: str) -> None:
        self.protocol, self.queue = check_protocol(protocol), check_queue(queue)
        self.journal = f"{{tambo:{protocol}:{queue}}}:journal"
        """Stream: what passed through."""
        self.state = f"{self.journal}:state"
        """Hash: how much there is, and how far its readers are."""

    def fence(self, query: str) -> str:
        """Hash: which chunks of rows *query* has written to the journal, and a digest of each."""
        return f"{{tambo:{self.protocol}:{self.queue}}}:fence:{query}"


def any_of(protocol: str) -> str:
    """Return what matches the journals of all queues of *protocol*."""
    return f"{{tambo:{check_protocol(protocol)}:*}}:journal"


def queue_of(protocol: str, key: str) -> str | None:
    """Return the queue of *protocol* whose journal *key* is; only for finding journals."""
    match = _JOURNAL_OF.fullmatch(key)
    return match[2] if match and match[1] == protocol else None


def owner_of(key: str) -> tuple[str, str]:
    """Return the protocol and the queue that *key* names, known or not; both empty if none."""
    match = _JOURNAL_OF.fullmatch(key)
    return (match[1], match[2]) if match else ("", "")


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


def check_reader(reader: str) -> str:
    """Return *reader* if it may name one; raise `InvalidFormat` if not."""
    if not isinstance(reader, str) or _READER.fullmatch(reader) is None:
        raise InvalidFormat("reader", reader, "1 to 160 of A-Z a-z 0-9 _ - .")
    return reader


def check_entry_id(id: str) -> str:
    """Return *id* if it may be an entry's; raise `InvalidFormat` if not."""
    if not isinstance(id, str) or not _ENTRY_ID.fullmatch(id) or max(map(int, id.split("-"))) >> 64:
        raise InvalidFormat("entry id", id, "two numbers of 64 bits, such as 1718000000000-0")
    return id


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
