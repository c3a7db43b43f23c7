"""Names of the journal's Redis keys and fields. No other Python module spells one.

A journal is a stream beside a queue. Fields of an entry, in any order; all but ``d`` are text::

    e          the event: ``sent``, or another one of the protocol
    id         the message id; missing if the protocol has none
    ts         the time, in milliseconds
    n          the job name, if it has one; of ``delivered``, the consumer
    delay_ms   the delay it was sent with, if any
    a          the number of this receive of the message, from 1
    to         the number of receivers, if known
    r          the reason of a dead letter
    o          total size of all entries up to this one, as the bounds count it
    d          the body

Readers ignore unknown fields and events. A hash holds the journal's state::

    bytes gone               total size of all entries ever recorded, and of the trimmed ones
    refused dropped          refused sends, and events that were not recorded
    committed:<reader>       the last entry that a reader has committed
    read:<reader>            total size of all entries up to that one

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

BYTES, TRIMMED, REFUSED, DROPPED = b"bytes", b"gone", b"refused", b"dropped"
COMMITTED, READ = b"committed:", b"read:"

ANY: Final = "{tambo:*}:journal"
"""Matches the journals of all queues."""

_JOURNAL_OF: Final = re.compile(r"\{tambo:([a-z]+):(.+)\}:journal", re.DOTALL)
_ENTRY_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)
_READER: Final = re.compile(r"[A-Za-z0-9_.-]{1,160}", re.ASCII)


class JournalKeys:
    """The keys of one queue's journal."""

    __slots__ = ("journal", "protocol", "queue", "state")

    def __init__(self, protocol: str, queue: str) -> None:
        self.protocol, self.queue = check_protocol(protocol), check_queue(queue)
        self.journal = f"{{tambo:{protocol}:{queue}}}:journal"
        """Stream of the entries."""
        self.state = f"{self.journal}:state"
        """Hash of the totals and of the readers' positions."""

    def fence(self, query: str) -> str:
        """Return the hash of the chunks that *query* has written, with the digest of each."""
        return f"{{tambo:{self.protocol}:{self.queue}}}:fence:{query}"


def any_of(protocol: str) -> str:
    """Return the pattern that matches the journals of all queues of *protocol*."""
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
    """Return *protocol* if it is known; raise `InvalidFormat` if not."""
    if protocol not in PROTOCOLS:
        raise InvalidFormat("protocol", protocol, f"one of {', '.join(PROTOCOLS)}")
    return protocol


def check_queue(queue: str) -> str:
    """Return *queue* if it is a valid queue name; raise `InvalidFormat` if not."""
    if not isinstance(queue, str) or not queue or not _is_text(queue):
        raise InvalidFormat("queue name", queue, "any text that is not empty")
    return queue


def check_reader(reader: str) -> str:
    """Return *reader* if it is a valid reader name; raise `InvalidFormat` if not."""
    if not isinstance(reader, str) or _READER.fullmatch(reader) is None:
        raise InvalidFormat("reader", reader, "1 to 160 of A-Z a-z 0-9 _ - .")
    return reader


def check_entry_id(id: str) -> str:
    """Return *id* if it is a valid entry id; raise `InvalidFormat` if not."""
    if not isinstance(id, str) or not _ENTRY_ID.fullmatch(id) or max(map(int, id.split("-"))) >> 64:
        raise InvalidFormat("entry id", id, "two numbers of 64 bits, such as 1718000000000-0")
    return id


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
