"""Lease calls and plans that all protocols share, on keys that the caller passes.

`tambomq.bulk.lease_ops` says what each operation does, `tambomq.bulk.lease_model` what a lease
and a claim are. Operations on a claim's messages run a protocol's own script, one chunk of
`CHUNK` messages at a time; the plans here repeat it until all messages are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from tambomq.bulk import lease_model
from tambomq.bulk.lease_model import (
    CHUNK,
    AckCounts,
    AttachResult,
    Claim,
    LeaseInfo,
    LeaseRequest,
    OpenClaim,
)
from tambomq.store.call import Arg, Call, Plan, load_script, results

_ATTACH: Final = load_script("tambomq.bulk", "lease_attach")
_RESIGN: Final = load_script("tambomq.bulk", "lease_resign")
_WRITE_VERDICTS: Final = load_script("tambomq.bulk", "lease_write_verdicts")
_CLEAR_VERDICTS: Final = load_script("tambomq.bulk", "lease_clear_verdicts")
_RELEASE: Final = load_script("tambomq.bulk", "lease_release")
_FORGET: Final = load_script("tambomq.bulk", "lease_forget")


# ── the lease ────────────────────────────────────────────────────────────────


def attach(
    leases: str, ledger: str, request: LeaseRequest, dead_holder: str = ""
) -> Call[AttachResult]:
    """Acquire the lease, unless another owner holds it; *dead_holder* is known to be dead."""
    args = (request.lease, request.owner, request.holder, request.lease_ms, dead_holder)
    return Call(_ATTACH, (leases, ledger), args, lease_model.decode_attach, repeatable=True)


def resign(ledger: str, request: LeaseRequest) -> Call[bool]:
    """Release the lease now; false if another owner holds it."""
    return Call(_RESIGN, (ledger,), (request.owner,), bool, repeatable=True)


def open_claim(ledger: str) -> Call[OpenClaim]:
    """Return the owner of the lease and its open claim."""
    fields, decode = ("owner", "claim", "mark"), lease_model.decode_open_claim
    return Call("HMGET", (ledger,), fields, decode, repeatable=True)


def list_leases(
    leases: str, look_up: Callable[[str], tuple[str, Call[int]]]
) -> Plan[list[LeaseInfo]]:
    """Return the leases whose names are in the set *leases*.

    *look_up* returns, for a name, the key of the ledger and the call for its claim's size.
    """
    now = Call("TIME", (), (), lease_model.decode_time_ms, repeatable=True)
    names, now_ms = results((yield (_names(leases), now)))
    calls: list[Call[Any]] = []
    for ledger, size in map(look_up, names):
        calls += (Call("HMGET", (ledger,), lease_model.INFO_FIELDS, list, repeatable=True), size)
    replies = results((yield calls)) if calls else []
    rows = zip(names, replies[::2], replies[1::2], strict=True)
    return [lease_model.lease_info(name, fields, size, now_ms) for name, fields, size in rows]


def release_if_expired(ledger: str, members: str, verdicts: str) -> Call[int]:
    """Close the open claim if lease and claim have expired; how many messages it had."""
    return Call(_RELEASE, (ledger, members, verdicts), (), int, repeatable=True)


def release_expired(
    leases: str, release: Callable[[str], Call[int]], except_lease: str
) -> Plan[dict[str, int]]:
    """Run *release* for each lease but *except_lease*; its results that are not 0, by lease."""
    names = [lease for lease in results((yield (_names(leases),)))[0] if lease != except_lease]
    calls = [release(lease) for lease in names]
    released = results((yield calls)) if calls else []
    return {lease: count for lease, count in zip(names, released, strict=True) if count}


def forget(keys: tuple[str, ...], queue: str, lease: str, dead_holder: str) -> Call[bool]:
    """Delete a lease; false if there is none.

    *keys* are the set of all leases, the ledger, and the lease's other keys. Raises `LeaseTaken`
    while it is held, and `QueueError` while a claim is open.
    """
    decode = partial(lease_model.decode_forget, queue, lease)
    return Call(_FORGET, keys, (lease, dead_holder), decode, repeatable=True)


# ── claims, one script per chunk ─────────────────────────────────────────────


def claim_in_chunks(take: Callable[[int, int], Call[Claim]], count: int) -> Plan[Claim]:
    """Claim up to *count* messages; ``take(size, more)`` adds *more* to a claim of *size*."""
    size = 0
    while True:
        got: Claim = results((yield (take(size, min(CHUNK, count - size)),)))[0]
        if got.added:
            size = got.size
        if got.added < CHUNK or size >= count:
            # If an earlier reply was lost, the script reports the chunk as already claimed
            # (added = 0): count what this plan has seen added.
            return msgspec.structs.replace(got, added=size)


def sum_over_members(step: Callable[[int], Call[Any]]) -> Plan[int]:
    """Run *step* from the offset of each chunk of a claim's members; the sum of its counts.

    A step replies how many members it has visited, and how many of them it counts.
    """
    total = first = 0
    while True:
        visited, counted = results((yield (step(first),)))[0]
        total, first = total + int(counted), first + int(visited)
        if visited < CHUNK:
            return total


def prune_in_chunks(step: Call[Any], size: int) -> Plan[int]:
    """Run *step* until each of *size* members was checked once; how many are left."""
    left = size
    for _ in range(0, size, CHUNK):
        # A repeated step checks the next members, which would have been checked anyway.
        left = int(results((yield (step,)))[0][0])
    return left


def acknowledge_in_chunks(step: Call[Any]) -> Plan[AckCounts]:
    """Run *step* until no member is left; what became of them."""
    chunks = []
    while True:
        left, *counts = results((yield (step,)))[0]
        chunks.append(counts)
        if not left:
            return lease_model.sum_ack_counts(chunks)


def write_verdicts(
    keys: tuple[str, str],
    request: LeaseRequest,
    number: int,
    claim_token: str,
    verdicts: Sequence[Arg],
) -> Call[None]:
    """Store *verdicts*, ids and verdicts alternating; *keys* are the ledger and its verdicts.

    Raises `LeaseLost` if the lease has another owner by now, and `QueueError` if the claim is not
    open.
    """
    args = (request.owner, number, claim_token, *verdicts)
    decode = partial(lease_model.decode_verdicts, request, number)
    return Call(_WRITE_VERDICTS, keys, args, decode, repeatable=True)


def clear_verdicts(keys: tuple[str, str], request: LeaseRequest) -> Plan[None]:
    """Delete the verdicts on the open claim; *keys* are the ledger and its verdicts."""
    decode = partial(lease_model.require_owner, request)
    results((yield (Call(_CLEAR_VERDICTS, keys, (request.owner,), decode, repeatable=True),)))


def _names(leases: str) -> Call[list[str]]:
    return Call("SMEMBERS", (leases,), (), lease_model.decode_names, repeatable=True)
