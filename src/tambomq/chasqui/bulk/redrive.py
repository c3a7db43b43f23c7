"""Dead letters on their way back into a queue, as calls and plans nobody has made yet.

What a redrive is: `tambomq.store.redrives`. Each letter is among the dead letters or in the queue,
never in both and never in neither, whatever happens to who moves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.chasqui.job import DeadLetter
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.ops import Policy
from tambomq.chasqui.recorded import payload_of, recorded
from tambomq.chasqui.wire import decode_envelope, encode_envelope
from tambomq.chasqui.wire_records import read_dead_letter
from tambomq.errors import QueueError, RemoteProtocolError
from tambomq.store import redrives
from tambomq.store.call import Arg, Call, Plan, load_script, results
from tambomq.store.redrives import CHUNK, KEEP_S, Moved, Redrive, Undone

_MOVE = load_script("tambomq.chasqui", "redrive_move", "note", "room")
_UNDO = load_script("tambomq.chasqui", "redrive_undo", "note", "prefix")


class Job(msgspec.Struct, frozen=True):
    """A dead letter as the job it becomes."""

    letter: str
    id: str
    body: bytes
    """As it is stored."""
    name: str


class Gone(msgspec.Struct, frozen=True):
    """A letter that was moved: where it is now, and its job's id."""

    entry: str
    job_id: str


def begin(keys: Keys, told: Redrive) -> Call[Redrive]:
    """Begin *told*; or return the redrive that has its id already, as it is."""
    return redrives.begin(keys.redrives, keys.redrive(told.id), told)


def known(keys: Keys) -> Plan[list[Redrive]]:
    """Return the redrives of a queue that are remembered, the oldest first."""
    return redrives.known(keys.redrives, keys.redrive)


def settle(keys: Keys, id: str, state: str) -> Call[bool]:
    """Say what has become of a redrive; false if it is undone, or forgotten."""
    return redrives.settle(keys.redrive(id), state)


def letter(keys: Keys, dlq_id: str) -> Call[DeadLetter | None]:
    """Return a dead letter; `None` if it is not there any more."""
    return Call("XRANGE", (keys.dlq,), (dlq_id, dlq_id), _letter, repeatable=True)


def job_of(letter: DeadLetter, *, reset: bool, payload: bytes | None = None) -> Job | None:
    """Return the job that a letter becomes; `None` if it is none.

    *reset* gives it all its attempts again; *payload* is its new one, as MessagePack.
    """
    try:
        envelope = decode_envelope(letter.payload)
    except RemoteProtocolError:
        return None
    body = letter.payload
    if payload is not None or (reset and envelope.attempt):
        attempt = 0 if reset else envelope.attempt
        value = envelope.payload if payload is None else payload
        body = encode_envelope(msgspec.structs.replace(envelope, payload=value, attempt=attempt))
    return Job(letter.dlq_id, envelope.id, body, letter.name)


def move(keys: Keys, policy: Policy, id: str, now_ms: int, jobs: Sequence[Job]) -> Call[Moved]:
    """Let jobs wait for a worker again; raise `QueueError` if the redrive was undone.

    Raises `JournalFull`, and moves none of them.
    """
    own = (keys.redrive(id), keys.redriven(id), keys.stalls(""))
    where = (keys.dlq, keys.stream, keys.events, *own)
    words: list[Arg] = [policy.max_stream_len, policy.events_cap, now_ms, KEEP_S]
    for job in jobs:
        words += (job.letter, job.id, job.body, job.name)
    call = Call(_MOVE, where, tuple(words), partial(_moved, keys, id), repeatable=True)
    if policy.journal is None:
        return call
    told: list[Arg] = []
    for job in jobs:
        told += (job.letter, job.id, job.name, payload_of(job.body))
    size = sum(len(payload_of(job.body)) for job in jobs)
    return recorded(keys, policy.journal, call, entries=len(jobs), size=size, extra=told)


def undo(keys: Keys, policy: Policy, id: str, now_ms: int) -> Plan[Undone]:
    """Put back what no worker has taken, with its reason and its bytes; it gets a new place.

    Raises `QueueError` if nothing is known of such a redrive.
    """
    where = (keys.dlq, keys.stream, keys.events, keys.redrive(id), keys.redriven(id))
    after, total = "-", Undone()
    while after:
        args = (after, CHUNK, policy.events_cap, now_ms)
        call = Call(_UNDO, where, args, partial(_undone, keys, id), repeatable=True)
        after, some = results((yield (call,)))[0]
        total += some
    return total


def first_moved(keys: Keys, id: str, count: int) -> Call[list[Gone]]:
    """Return the first letters that were moved and not put back."""
    args = ("-", "+", "COUNT", count)
    return Call("XRANGE", (keys.redriven(id),), args, _gone, repeatable=True)


def in_hands(keys: Keys, entries: Sequence[str], group: str = GROUP) -> Plan[set[str]]:
    """Return those of *entries* that a worker has."""
    if not entries:
        return set()
    calls = [
        Call("XPENDING", (keys.stream,), (group, each, each, 1), bool, repeatable=True)
        for each in entries
    ]
    outcomes = yield calls
    # Where no worker has ever been, there is an error instead.
    return {each for each, held in zip(entries, outcomes, strict=True) if held is True}


def _letter(rows: list[Any]) -> DeadLetter | None:
    return read_dead_letter(*rows[0]) if rows else None


def _gone(rows: list[Any]) -> list[Gone]:
    return [Gone(fields[3].decode(), _job_id(id, fields[4:])) for id, fields in rows]


def _job_id(id: bytes, fields: Sequence[bytes]) -> str:
    try:
        return decode_envelope(read_dead_letter(id, fields).payload).id
    except RemoteProtocolError:
        return ""


def _moved(keys: Keys, id: str, reply: Any) -> Moved:
    if reply is None:
        raise QueueError(keys.queue, f"redrive {id!r} of queue {keys.queue!r} was undone")
    return redrives.moved(reply)


def _undone(keys: Keys, id: str, reply: Any) -> tuple[str, Undone]:
    if reply is None:
        raise QueueError(keys.queue, f"queue {keys.queue!r} knows of no redrive {id!r}")
    return redrives.undone(reply)
