"""Calls and plans for the dead-letter queue: list, find and replay dead letters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import msgspec

from tambomq.chasqui.job import U64, DeadLetter, check_whole
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.wire.envelope import decode_envelope, encode_envelope
from tambomq.chasqui.wire.records import read_dead_letter
from tambomq.errors import QueueFull, RemoteProtocolError
from tambomq.store.call import Arg, Call, Plan, load_script, results

PAGE = 250
"""Letters that are read, and replayed, at a time."""

_WRITTEN_BEFORE_MS = 100
"""One script writes a letter and then its event: the letter is at most so much older."""
_SEARCHED_PAGES = 4
"""Pages that are searched for the letter of a job."""

LetterFilter: TypeAlias = Callable[[DeadLetter], bool]

_REPLAY = load_script("tambomq.chasqui.ops", "replay")


def peek(keys: Keys, limit: int, after: str = "-", until: str = "+") -> Call[list[DeadLetter]]:
    """Return dead letters, the oldest first, and leave them where they are."""
    count = check_whole("limit", limit, U64)
    if count == 0:
        # A COUNT of 0 means none to some servers and all to others.
        return Call("ECHO", (), ("",), _none, repeatable=True)
    args = (after, until, "COUNT", count)
    return Call("XRANGE", (keys.dlq,), args, _letters, repeatable=True)


def buried_at(keys: Keys, job_id: str, event_id: str) -> Plan[DeadLetter | None]:
    """Return the letter of a job whose ``dlq`` event is *event_id*; `None` if there is none.

    A letter of another engine may be too far from its event to be found.
    """
    at_ms = int(event_id.partition("-")[0])
    before = str(at_ms)
    for _ in range(_SEARCHED_PAGES):
        args = (before, max(0, at_ms - _WRITTEN_BEFORE_MS), "COUNT", PAGE)
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
    """Return the job id of *letter*; `None` if its payload is not an envelope."""
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
    where: LetterFilter | None = None,
) -> Plan[int]:
    """Move up to *limit* dead letters back to the stream; return how many.

    *ids* and *where* select. Letters that are not jobs stay, and do not count.
    """
    left = check_whole("limit", limit, U64)
    chosen = None if ids is None else set(ids)
    after, done = "-", 0
    # A replayed job may die again before the next page is read: it must not be replayed twice.
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
    """Move one dead letter back to the stream; false if it was removed, or is not a job."""
    job = _job(letter, None, None)
    if job is None:
        return False
    replayed, full = results((yield (_replay(keys, policy, now_ms, [job]),)))[0]
    if full:
        raise QueueFull(keys.queue, policy.max_stream_len)
    return bool(replayed)


def _job(
    letter: DeadLetter, chosen: set[str] | None, where: LetterFilter | None
) -> tuple[Arg, ...] | None:
    """Return the arguments to replay *letter*; `None` if it is not a job, or not selected."""
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
    redis_keys = (keys.dlq, keys.stream, keys.events, keys.stalls(""))
    return Call(_REPLAY, redis_keys, args, _replayed, repeatable=True)


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
