"""What those who look after dead letters ask of Redis, as calls and plans nobody has made yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import msgspec

from tambomq.chasqui.job import U64, DeadLetter, check_whole
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import Policy
from tambomq.chasqui.wire import decode_envelope, encode_envelope
from tambomq.chasqui.wire_records import read_dead_letter
from tambomq.errors import QueueFull, RemoteProtocolError
from tambomq.store.call import Arg, Call, Plan, load_script, results

PAGE = 250
"""So many letters are looked at, and replayed, at a time."""

_JUST_BEFORE_MS = 100
"""A letter and the event that tells of it are written by one script, the letter first."""
_LATEST = 4
"""So many pages are searched for the letter of a job."""

Where: TypeAlias = Callable[[DeadLetter], bool]

_REPLAY = load_script("tambomq.chasqui", "replay", "note", "room")


def peek(keys: Keys, limit: int, after: str = "-", until: str = "+") -> Call[list[DeadLetter]]:
    """Return dead letters, the oldest first; nothing changes."""
    count = check_whole("limit", limit, U64)
    if count == 0:
        # A COUNT of 0 means none to some servers and all to others.
        return Call("ECHO", (), ("",), _none, repeatable=True)
    args = (after, until, "COUNT", count)
    return Call("XRANGE", (keys.dlq,), args, _letters, repeatable=True)


def buried_at(keys: Keys, job_id: str, event_id: str) -> Plan[DeadLetter | None]:
    """Return the letter of a job whose ``dlq`` event is *event_id*; `None` if it is gone.

    Those that another engine writes may be too far from their event to be found.
    """
    at_ms = int(event_id.partition("-")[0])
    before = str(at_ms)
    for _ in range(_LATEST):
        args = (before, max(0, at_ms - _JUST_BEFORE_MS), "COUNT", PAGE)
        call = Call("XREVRANGE", (keys.dlq,), args, _letters, repeatable=True)
        page: list[DeadLetter] = results((yield (call,)))[0]
        for letter in page:
            if job_of(letter) == job_id:
                return letter
        if len(page) < PAGE:
            break
        before = f"({page[-1].dlq_id}"
    return None


def job_of(letter: DeadLetter) -> str | None:
    """Return the id of the job that *letter* was; `None` if it was none."""
    try:
        return decode_envelope(letter.payload).id
    except RemoteProtocolError:
        return None


def replay(
    keys: Keys,
    policy: Policy,
    now_ms: int,
    *,
    limit: int,
    ids: Collection[str] | None = None,
    where: Where | None = None,
) -> Plan[int]:
    """Let up to *limit* dead letters wait for a worker again; return how many do.

    *ids* and *where* choose. Letters that are no jobs stay, and count for nothing.
    """
    left = check_whole("limit", limit, U64)
    chosen = None if ids is None else set(ids)
    after, done = "-", 0
    # A job may be dead again before the next page is read; it is not for this call any more.
    until = results((yield (_last(keys),)))[0]
    while left > 0 and (chosen is None or chosen):
        outcomes = yield (peek(keys, PAGE, after, until),)
        page: list[DeadLetter] = results(outcomes)[0]
        if not page:
            break
        after = f"({page[-1].dlq_id}"
        jobs = [job for letter in page if (job := _job(letter, chosen, where))][:left]
        if chosen is not None:
            chosen -= {letter.dlq_id for letter in page}
        if not jobs:
            continue
        outcomes = yield (_replay(keys, policy, now_ms, jobs),)
        replayed, full = results(outcomes)[0]
        done, left = done + replayed, left - len(jobs)
        if full:
            if not done:
                raise QueueFull(keys.queue, policy.max_stream_len)
            break
    return done


def replay_letter(keys: Keys, policy: Policy, now_ms: int, letter: DeadLetter) -> Plan[bool]:
    """Let one dead letter wait for a worker again; false if it is gone, or no job."""
    job = _job(letter, None, None)
    if job is None:
        return False
    replayed, full = results((yield (_replay(keys, policy, now_ms, [job]),)))[0]
    if full:
        raise QueueFull(keys.queue, policy.max_stream_len)
    return bool(replayed)


def _job(
    letter: DeadLetter, chosen: set[str] | None, where: Where | None
) -> tuple[Arg, ...] | None:
    """The letter as a job for its first run; `None` if it is none, or not chosen."""
    if chosen is not None and letter.dlq_id not in chosen:
        return None
    try:
        envelope = decode_envelope(letter.payload)
    except RemoteProtocolError:
        return None
    if where is not None and not where(letter):
        return None
    body = encode_envelope(msgspec.structs.replace(envelope, attempt=0))
    return letter.dlq_id, envelope.id, body, letter.name


def _replay(
    keys: Keys, policy: Policy, now_ms: int, jobs: Sequence[tuple[Arg, ...]]
) -> Call[tuple[int, bool]]:
    flat = [item for job in jobs for item in job]
    args = (policy.max_stream_len, policy.events_cap, now_ms, *flat)
    where = (keys.dlq, keys.stream, keys.events, keys.stalls(""))
    return Call(_REPLAY, where, args, _replayed, repeatable=True)


def _last(keys: Keys) -> Call[str]:
    args = ("+", "-", "COUNT", 1)
    return Call("XREVRANGE", (keys.dlq,), args, _last_id, repeatable=True)


def _last_id(rows: list[Any]) -> str:
    return rows[0][0].decode() if rows else "0-0"


def _replayed(reply: list[int]) -> tuple[int, bool]:
    count, full = reply
    return count, bool(full)


def _letters(rows: list[Any]) -> list[DeadLetter]:
    return [read_dead_letter(id, fields) for id, fields in rows]


def _none(_: Any) -> list[DeadLetter]:
    return []
