"""The plan that cancels a job wherever it is, and the call with which workers poll for that.

The script that cancels a running job also ends it: it deletes the entry and writes the event, so
whatever the worker reports later finds nothing to settle. To stop the handler too, workers read a
stream of cancelled entries whenever a message is published to the channel of its name, and every
few seconds. So no outcome depends on when they read it, or whether.
"""

from __future__ import annotations

from typing import Any

from tambomq.chasqui.decisions import MAX_DETAIL
from tambomq.chasqui.keys import RETURNED, Keys, check_job_id
from tambomq.chasqui.ops.jobs import TRIES, DelayedMember, Found, StreamEntry, find
from tambomq.chasqui.ops.worker import as_text
from tambomq.chasqui.wire.envelope import by_name, decode_member, read_entry
from tambomq.errors import InvalidFormat, JobBusy
from tambomq.ids import ulid
from tambomq.store.call import Call, Plan, load_script, results

MAX_LISTED = 1000
"""Cancelled entries that are listed for workers, approximately."""
LISTED_S = 24 * 3600
"""How long the list is kept after its last entry, in seconds."""

_CANCEL_JOB = load_script("tambomq.chasqui.ops", "cancel_job")


def cancel_job(keys: Keys, job_id: str, reason: str, events_cap: int) -> Plan[bool]:
    """End a delayed, waiting or running job; false if there is none, or it has ended.

    Raises `JobBusy` if a Spark query or a worker of another implementation runs it.
    """
    check_job_id(job_id)
    if not isinstance(reason, str):
        raise InvalidFormat("reason", reason, "text")
    request = ulid(0)
    for _ in range(TRIES):
        found = yield from find(keys, job_id)
        if not isinstance(found, DelayedMember | StreamEntry):
            return False
        call = _cancel(keys, job_id, found, reason, events_cap, request)
        done = results((yield (call,)))[0]
        if isinstance(done, str):
            raise JobBusy(keys.queue, job_id, done)
        if done:
            return True
    return False


def cancelled_since(keys: Keys, after: str) -> Call[list[tuple[str, str, str]]]:
    """Return id, entry and reason of each cancellation of a running job after the id *after*."""
    args = (f"({after}", "+", "COUNT", MAX_LISTED)
    return Call("XRANGE", (keys.cancels,), args, _cancellations, repeatable=True)


def _cancel(
    keys: Keys, job_id: str, found: Found, reason: str, events_cap: int, request: str
) -> Call[bool | str]:
    if isinstance(found, DelayedMember):
        name, _ = decode_member(found.member)
        place: tuple[str, bytes] = ("", found.member)
    else:
        assert isinstance(found, StreamEntry)  # noqa: S101  (the caller looked)
        _, name = read_entry(found.fields)
        place = (found.id, b"")
    redis_keys = (
        keys.stream, keys.delayed, keys.events, keys.cancels, keys.signs[3],
        keys.marker(job_id), keys.index(job_id), keys.stalls(job_id), keys.requests,
    )  # fmt: skip
    args = (
        *place, RETURNED, events_cap, job_id, name, as_text(reason[:MAX_DETAIL]), request,
        MAX_LISTED, LISTED_S,
    )  # fmt: skip
    return Call(_CANCEL_JOB, redis_keys, args, _cancelled, repeatable=True)


def _cancelled(reply: int | bytes) -> bool | str:
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else bool(reply)


def _cancellations(rows: list[Any]) -> list[tuple[str, str, str]]:
    return [
        (
            id.decode(),
            known[b"entry"].decode(),
            known.get(b"reason", b"").decode("utf-8", "replace"),
        )
        for id, fields in rows
        if b"entry" in (known := by_name(fields))
    ]
