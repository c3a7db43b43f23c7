"""Calls and plans that return ChasquiMQ dead letters to their queue.

`tambomq.bulk.redrives` says what a redrive is. Each script moves atomically, so a job is always
either a dead letter or in the queue, even if the moving process crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.bulk import redrives
from tambomq.bulk.redrives import CHUNK, KEEP_S, MoveResult, Redrive, UndoResult
from tambomq.chasqui.job import DeadLetter
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.ops.journal import payload_of, recorded
from tambomq.chasqui.wire.envelope import decode_envelope, encode_envelope
from tambomq.chasqui.wire.records import read_dead_letter
from tambomq.errors import QueueError, RemoteProtocolError
from tambomq.store.call import Arg, Call, Plan, load_script, results

_MOVE = load_script("tambomq.chasqui.bulk", "redrive_move")
_UNDO = load_script("tambomq.chasqui.bulk", "redrive_undo")


class RedrivenJob(msgspec.Struct, frozen=True):
    """A dead letter as the job it becomes."""

    letter: str
    id: str
    body: bytes
    """The encoded envelope."""
    name: str


class MovedLetter(msgspec.Struct, frozen=True):
    """A dead letter that was moved: the entry it became, and its job's id."""

    entry: str
    job_id: str


def begin(keys: Keys, redrive: Redrive) -> Call[Redrive]:
    """Store *redrive*, or return the one that is already stored with its id."""
    return redrives.begin(keys.redrives, keys.redrive(redrive.id), redrive)


def known(keys: Keys) -> Plan[list[Redrive]]:
    """Return the stored redrives of a queue, the oldest first."""
    return redrives.known(keys.redrives, keys.redrive)


def settle(keys: Keys, id: str, state: str) -> Call[bool]:
    """Set the state of a redrive; false if it is undone, or no longer stored."""
    return redrives.settle(keys.redrive(id), state)


def letter(keys: Keys, dlq_id: str) -> Call[DeadLetter | None]:
    """Return a dead letter; `None` if it does not exist any more."""
    return Call("XRANGE", (keys.dlq,), (dlq_id, dlq_id), _letter, repeatable=True)


def job_of(letter: DeadLetter, *, reset: bool, payload: bytes | None = None) -> RedrivenJob | None:
    """Return the job that a dead letter becomes; `None` if its envelope cannot be decoded.

    *reset* sets its attempts to 0; *payload* replaces its payload, and is MessagePack.
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
    return RedrivenJob(letter.dlq_id, envelope.id, body, letter.name)


def move(
    keys: Keys, policy: Policy, id: str, now_ms: int, jobs: Sequence[RedrivenJob]
) -> Call[MoveResult]:
    """Move dead letters back to the queue as *jobs*.

    Raises `QueueError` if the redrive was undone, or `JournalFull`; then none is moved.
    """
    own = (keys.redrive(id), keys.redriven(id), keys.stalls(""))
    call_keys = (keys.dlq, keys.stream, keys.events, *own)
    words: list[Arg] = [policy.max_stream_len, policy.events_cap, now_ms, KEEP_S]
    for job in jobs:
        words += (job.letter, job.id, job.body, job.name)
    call = Call(_MOVE, call_keys, tuple(words), partial(_moved, keys, id), repeatable=True)
    if policy.journal is None:
        return call
    payloads = [payload_of(job.body) for job in jobs]
    size = sum(map(len, payloads))
    return recorded(keys, policy.journal, call, entries=len(jobs), size=size, payloads=payloads)


def undo(keys: Keys, policy: Policy, id: str, now_ms: int) -> Plan[UndoResult]:
    """Move jobs that no worker has read back to the dead letters, under new entry ids.

    They keep their original bytes and reason. Raises `QueueError` if no such redrive is stored.
    """
    call_keys = (keys.dlq, keys.stream, keys.events, keys.redrive(id), keys.redriven(id))
    after, total = "-", UndoResult()
    while after:
        args = (after, CHUNK, policy.events_cap, now_ms)
        call = Call(_UNDO, call_keys, args, partial(_undone, keys, id), repeatable=True)
        after, some = results((yield (call,)))[0]
        total += some
    return total


def first_moved(keys: Keys, id: str, count: int) -> Call[list[MovedLetter]]:
    """Return the first dead letters that were moved and not moved back."""
    args = ("-", "+", "COUNT", count)
    return Call("XRANGE", (keys.redriven(id),), args, _moved_letters, repeatable=True)


def in_hands(keys: Keys, entries: Sequence[str], group: str = GROUP) -> Plan[set[str]]:
    """Return those of *entries* that a worker holds."""
    if not entries:
        return set()
    calls = [
        Call("XPENDING", (keys.stream,), (group, each, each, 1), bool, repeatable=True)
        for each in entries
    ]
    outcomes = yield calls
    # Redis replies with an error if the group does not exist: then no worker holds any.
    return {each for each, held in zip(entries, outcomes, strict=True) if held is True}


def _letter(rows: list[Any]) -> DeadLetter | None:
    return read_dead_letter(*rows[0]) if rows else None


def _moved_letters(rows: list[Any]) -> list[MovedLetter]:
    return [MovedLetter(fields[3].decode(), _job_id(id, fields[4:])) for id, fields in rows]


def _job_id(id: bytes, fields: Sequence[bytes]) -> str:
    try:
        return decode_envelope(read_dead_letter(id, fields).payload).id
    except RemoteProtocolError:
        return ""


def _moved(keys: Keys, id: str, reply: Any) -> MoveResult:
    if reply is None:
        raise QueueError(keys.queue, f"redrive {id!r} of queue {keys.queue!r} was undone")
    return redrives.moved(reply)


def _undone(keys: Keys, id: str, reply: Any) -> tuple[str, UndoResult]:
    if reply is None:
        raise QueueError(keys.queue, f"queue {keys.queue!r} has no redrive {id!r}")
    return redrives.undone(reply)
