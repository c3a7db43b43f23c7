"""Verdicts on single jobs of a claim: what happens to each when the claim is acknowledged.

A retried job whose attempts are used up is dead-lettered instead, as by a worker. That is decided
here, when the verdict is written; the acknowledging script only carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tambomq.bulk import lease_calls
from tambomq.bulk.lease_model import CHUNK, LeaseRequest
from tambomq.chasqui.decisions import DeadLettered, RetryPolicy, admit_delivery, after_failure
from tambomq.chasqui.job import MAX_ATTEMPTS, U32, UNRECOVERABLE
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import encode_member
from tambomq.store.call import Arg, Call, Plan, results

# A lease reads jobs of any size and attempt: only undecodable ones are dead-lettered unread.
_ACCEPT_ALL = RetryPolicy(max_attempts=U32, max_payload_bytes=1 << 62)


def write_verdicts(
    request: LeaseRequest,
    number: int,
    claim_token: str,
    verdicts: Sequence[tuple[str, str]],
    *,
    max_attempts: int = MAX_ATTEMPTS,
) -> Plan[None]:
    """Store what happens to jobs at the acknowledgement, as (entry id, verdict).

    A verdict is ``r<ms> <reason>`` (retry after that delay), ``d<reason>`` (dead-letter), or
    ``''`` (done). A job without a limit of its own is retried until *max_attempts* is reached.
    Raises `LeaseLost` if the lease has another owner than *request* names, and `QueueError` if
    claim *number* is not open.
    """
    policy = RetryPolicy(max_attempts=max_attempts)
    keys = Keys(request.queue)
    verdict_keys = (keys.ledger(request.lease), keys.verdicts(request.lease))
    for first in range(0, len(verdicts), CHUNK):
        chunk = verdicts[first : first + CHUNK]
        found = results((yield [_entry(keys, entry) for entry, _ in chunk]))
        args: list[Arg] = []
        for (entry, verdict), fields in zip(chunk, found, strict=True):
            args += (entry, _encode(verdict, fields, policy))
        call = lease_calls.write_verdicts(verdict_keys, request, number, claim_token, args)
        results((yield (call,)))


def _encode(verdict: str, fields: Sequence[bytes], policy: RetryPolicy) -> bytes:
    """Return a verdict as lease_acknowledge.lua reads it.

    ``r<ms> <size of reason> <reason><member>``, ``d<reason> <detail>``, or nothing for done, also
    where the entry no longer exists.
    """
    if verdict.startswith("d"):
        return _dead(UNRECOVERABLE, verdict[1:])
    if not verdict or not fields:
        return b""
    delay, _, reason = verdict.partition(" ")
    job = admit_delivery(fields, 0, _ACCEPT_ALL)
    if isinstance(job, DeadLettered):
        # A retry would fail to decode it again.
        return _dead(job.reason, job.detail or reason)
    outcome = after_failure(*job, RuntimeError(reason), policy, _no_jitter)
    if isinstance(outcome, DeadLettered):
        return _dead(outcome.reason, outcome.detail)
    # In the engine's dialect, which every promoter reads.
    why, member = _encode_text(reason), encode_member(job[1], outcome.body, "engine")
    return b"%b %d %b%b" % (delay.encode(), len(why), why, member)


def _dead(reason: str, detail: str) -> bytes:
    return _encode_text(f"d{reason} {detail}")


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _no_jitter(bound: int) -> int:  # noqa: ARG001  (the verdict says the delay)
    return 0


def _entry(keys: Keys, entry: str) -> Call[Sequence[bytes]]:
    return Call("XRANGE", (keys.stream,), (entry, entry), _decode_fields, repeatable=True)


def _decode_fields(reply: list[Any]) -> Sequence[bytes]:
    return reply[0][1] if reply else ()
