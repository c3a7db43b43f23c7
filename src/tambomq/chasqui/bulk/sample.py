"""Cheap reads of a ChasquiMQ queue for whoever monitors it. Nothing here writes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tambomq.chasqui.keys import ANY_QUEUE, GROUP, RETURNED, Keys, trace_of
from tambomq.store.call import Call, load_script

ALIVE_MS: Final = 60_000
"""A worker reads or renews every few seconds. One that has not for so long is not counted."""
PAGE: Final = 1000

_SAMPLE: Final = load_script("tambomq.chasqui.bulk", "sample")


class JobSample(msgspec.Struct, frozen=True):
    """The numbers of a queue at one moment."""

    length: int
    """Entries of the stream."""
    pending: int
    """Those of them that a consumer has, returned ones included."""
    returned: int
    consumers: int
    """Workers that have read or renewed within `ALIVE_MS`."""
    added: int
    """Entries ever added to the stream."""
    first_ms: int | None
    """When the first job that no worker has read yet was added."""
    delayed: int
    due_ms: int | None
    """When the first delayed job is due."""
    dead: int
    died: int
    """Dead letters ever written."""
    events: int
    """Events ever written."""
    paused: bool
    repeatable: int
    damaged: int
    """How many of its keys hold another type, or nothing readable."""


class ConsumerState(msgspec.Struct, frozen=True):
    """A consumer of the group, without what it holds."""

    name: str
    pending: int
    idle_ms: int
    """Since it last read, or renewed a job."""


def consumers(keys: Keys) -> Call[list[ConsumerState]]:
    """Return the consumers of the group, without the one that stands for returned entries."""
    return Call(("XINFO", "CONSUMERS"), (keys.stream,), (GROUP,), _consumers, repeatable=True)


def leaders(keys: Keys) -> Call[tuple[str | None, str | None]]:
    """Return who holds the promoter's lock and the scheduler's."""
    locks = (keys.promoter_lock, keys.scheduler_lock)
    return Call("MGET", locks, (), _leaders, repeatable=True)


def sample(keys: Keys) -> Call[JobSample]:
    """Return the numbers of a queue; keys that cannot be read count as empty."""
    redis_keys = (keys.stream, keys.delayed, keys.dlq, keys.events, keys.paused, keys.repeat)
    return Call(_SAMPLE, redis_keys, (GROUP, RETURNED, ALIVE_MS), _sample, repeatable=True)


def names(cursor: bytes) -> Call[tuple[bytes, set[str]]]:
    """Return the next cursor (``0`` after the last page), and queues of which a key was found."""
    words = (cursor, "MATCH", ANY_QUEUE, "COUNT", PAGE)
    return Call("SCAN", (), words, _names, repeatable=True)


def sized_keys(keys: Keys) -> tuple[str, ...]:
    """Return the keys that hold nearly all of a queue's memory."""
    return keys.traces


def _names(reply: list[Any]) -> tuple[bytes, set[str]]:
    cursor, found = reply
    texts = (name.decode("utf-8", "surrogateescape") for name in found)
    # A name that is not UTF-8 is no queue's.
    return cursor, {q for t in texts if ((q := trace_of(t)) and q.isascii()) or (q and _is_text(q))}


def _consumers(reply: list[Any]) -> list[ConsumerState]:
    rows = (dict(zip(row[::2], row[1::2], strict=True)) for row in reply)
    return [
        ConsumerState(
            row[b"name"].decode("utf-8", "backslashreplace"), row[b"pending"], row[b"idle"]
        )
        for row in rows
        if row[b"name"] != RETURNED.encode()
    ]


def _leaders(reply: list[bytes | None]) -> tuple[str | None, str | None]:
    promoter, scheduler = (None if holder is None else _escaped(holder) for holder in reply)
    return promoter, scheduler


def _escaped(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _is_text(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _sample(reply: list[Any]) -> JobSample:
    length, pending, returned, consumers, added, first, delayed, due, *rest = reply
    dead, died, events, paused, repeatable, damaged = map(int, rest)
    return JobSample(
        length=int(length),
        pending=int(pending),
        returned=int(returned),
        consumers=int(consumers),
        added=int(added),
        first_ms=int(first.partition(b"-")[0]) if first else None,
        delayed=int(delayed),
        due_ms=_milliseconds(due),
        dead=dead,
        died=died,
        events=events,
        paused=bool(paused),
        repeatable=repeatable,
        damaged=damaged,
    )


def _milliseconds(score: bytes) -> int | None:
    try:
        return int(float(score)) if score else None
    except (ValueError, OverflowError):
        return None
