"""What is asked of the ledgers of all protocols alike, as calls and plans nobody has made yet.

What a lease and a claim are, and what the answers say: `tambomq.store.ledger`. A protocol brings
its keys, and the calls of its own scripts, each of which does one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from tambomq.store import ledger
from tambomq.store.call import Arg, Call, Plan, load_script, results
from tambomq.store.ledger import CHUNK, Claim, Holding, Opened, Settled, Standing, Term

_ATTACH: Final = load_script("tambomq.store", "lease_attach")
_RESIGN: Final = load_script("tambomq.store", "lease_resign")
_JUDGE: Final = load_script("tambomq.store", "lease_judge")
_RELEASE: Final = load_script("tambomq.store", "lease_release")
_FORGET: Final = load_script("tambomq.store", "lease_forget", "loose")


# ── the lease ────────────────────────────────────────────────────────────────


def attach(leases: str, where: str, term: Term, gone: str = "") -> Call[Standing]:
    """Have the lease, unless another query has it now; *gone* is one that is known to be dead."""
    args = (term.lease, term.owner, term.label, term.lease_ms, gone)
    return Call(_ATTACH, (leases, where), args, ledger.standing, repeatable=True)


def resign(where: str, term: Term) -> Call[bool]:
    """Let another have the lease at once; false if another has it already."""
    return Call(_RESIGN, (where,), (term.owner,), bool, repeatable=True)


def opened(where: str) -> Call[Opened]:
    """Return who has the lease, and which claim is open."""
    return Call("HMGET", (where,), ("owner", "claim", "mark"), ledger.opened, repeatable=True)


def listing(leases: str, look: Callable[[str], tuple[str, Call[int]]]) -> Plan[list[Holding]]:
    """Return the leases whose names are in the set *leases*.

    *look* returns the key of a ledger, and what asks for the size of its claim.
    """
    now = Call("TIME", (), (), ledger.milliseconds, repeatable=True)
    found, now_ms = results((yield (_names(leases), now)))
    calls: list[Call[Any]] = []
    for where, size in map(look, found):
        calls += (Call("HMGET", (where,), ledger.LOOKED_AT, list, repeatable=True), size)
    replies = results((yield calls)) if calls else []
    rows = zip(found, replies[::2], replies[1::2], strict=True)
    return [ledger.holding(name, fields, size, now_ms) for name, fields, size in rows]


def give_up(where: str, members: str, verdicts: str) -> Call[int]:
    """Let a claim be nobody's if its query is dead for too long; how many members it had."""
    return Call(_RELEASE, (where, members, verdicts), (), int, repeatable=True)


def release_expired(
    leases: str, release: Callable[[str], Call[int]], but: str
) -> Plan[dict[str, int]]:
    """Give up all claims that *release* gives up, but that of the lease *but*; what it says."""
    names = [lease for lease in results((yield (_names(leases),)))[0] if lease != but]
    calls = [release(lease) for lease in names]
    released = results((yield calls)) if calls else []
    return {lease: told for lease, told in zip(names, released, strict=True) if told}


def forget(keys: tuple[str, ...], queue: str, lease: str, gone: str) -> Call[bool]:
    """Remove a lease for good; false if there is none.

    *keys* are the set of all leases, the ledger, and what else belongs to it. Raises `LeaseTaken`
    while it is alive, and `QueueError` while a claim is open.
    """
    decode = partial(ledger.forgotten, queue, lease)
    return Call(_FORGET, keys, (lease, gone), decode, repeatable=True)


# ── claims, a chunk a script ─────────────────────────────────────────────────


def claim(take: Callable[[int, int], Call[Claim]], count: int) -> Plan[Claim]:
    """Take up to *count* members; *take* is told how many this claim has, and how many to add."""
    size = 0
    while True:
        got: Claim = results((yield (take(size, min(CHUNK, count - size)),)))[0]
        if got.added:
            size = got.size
        if got.added < CHUNK or size >= count:
            # A chunk that was added, but whose reply was lost, is told as if it had been there.
            return msgspec.structs.replace(got, added=size)


def walk(step: Callable[[int], Call[Any]]) -> Plan[int]:
    """Go through all members of a claim; the sum of what *step* counts, from a place on.

    It answers how many it has looked at, and how many of them count.
    """
    total = first = 0
    while True:
        seen, counted = results((yield (step(first),)))[0]
        total, first = total + int(counted), first + int(seen)
        if seen < CHUNK:
            return total


def prune(step: Call[Any], size: int) -> Plan[int]:
    """Look once at each of *size* members and leave out some; how many are left."""
    left = size
    for _ in range(0, size, CHUNK):
        # Repeated, it looks at more of them, and leaves out what it would have anyway.
        left = int(results((yield (step,)))[0][0])
    return left


def acknowledge(step: Call[Any]) -> Plan[Settled]:
    """End members until none is left; what became of them."""
    rounds = []
    while True:
        left, *counts = results((yield (step,)))[0]
        rounds.append(counts)
        if not left:
            return ledger.settled(rounds)


def judge(
    keys: tuple[str, str], queue: str, lease: str, number: int, words: Sequence[Arg]
) -> Call[None]:
    """Write verdicts down; *words* are members and verdicts, *keys* the ledger and its verdicts.

    Raises `QueueError` if claim *number* is not open.
    """
    decode = partial(ledger.written, queue, lease, number)
    return Call(_JUDGE, keys, (number, *words), decode, repeatable=True)


def _names(leases: str) -> Call[list[str]]:
    return Call("SMEMBERS", (leases,), (), ledger.names, repeatable=True)
