"""How a query holds many RSMQ messages at once, as calls and plans nobody has made yet.

What a lease and a claim are: `tambomq.store.ledger`. The messages of a claim are hidden as
received ones are, under the claim's mark as their token: each is ours only while its receipt
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.rsmq.keys import DEAD_SUFFIX, Keys, check_dead_queue
from tambomq.rsmq.replies import existing
from tambomq.store import leasing, ledger
from tambomq.store.call import Call, Plan, Script, load_script, results
from tambomq.store.ledger import CHUNK, Claim, Opened, Settled, Standing, Term


def _load(name: str, *parts: str) -> Script:
    return load_script("tambomq.rsmq", f"lease_{name}", *parts)


_HELD = ("member", "receipts", "claimed")
_CLAIM = _load("claim", "claims", "digest", "record")
_RENEW = _load("renew", *_HELD, "record")
_PRUNE = _load("prune", *_HELD)
_ACKNOWLEDGE = _load("acknowledge", "claims", *_HELD)


class Member(msgspec.Struct, frozen=True, gc=False):
    """A message as it was claimed."""

    id: bytes
    rc: bytes
    digest: bytes


# ── the lease ────────────────────────────────────────────────────────────────


def attach(keys: Keys, term: Term, *, gone: str = "") -> Call[Standing]:
    """Have the lease, unless another query has it now; *gone* is one that is known to be dead."""
    return leasing.attach(keys.leases(term.queue), keys.ledger(term.queue, term.lease), term, gone)


def beat(keys: Keys, term: Term) -> Call[Any]:
    """Keep the lease; raise `QueueError` if another has it."""
    return _renewal(keys, term, 0, 0)


def renew(keys: Keys, term: Term) -> Plan[int]:
    """Keep the lease and its messages hidden; how many of them are no more ours."""
    return leasing.walk(lambda first: _renewal(keys, term, first, CHUNK))


def resign(keys: Keys, term: Term) -> Call[bool]:
    """Let another have the lease at once; false if another has it already."""
    return leasing.resign(keys.ledger(term.queue, term.lease), term)


def release_expired(keys: Keys, queue: str, *, but: str = "") -> Plan[dict[str, int]]:
    """Give up claims of queries that are dead for too long; how many messages each lease had.

    *but* names a lease to leave alone. The messages have become visible by themselves.
    """
    return leasing.release_expired(keys.leases(queue), partial(give_up, keys, queue), but)


# ── claims ───────────────────────────────────────────────────────────────────


def claim(keys: Keys, term: Term, number: int, mark: str, count: int) -> Plan[Claim]:
    """Take up to *count* visible messages as claim *number*; or tell what it has already.

    Raises `QueueError` if the lease is another's, or at another claim.
    """

    def take(size: int, more: int) -> Call[Claim]:
        args = (term.owner, number, mark, size, more, term.hide_ms)
        where = (*_own(keys, term), keys.receipts(term.queue))
        return Call(_CLAIM, where, args, partial(_claimed, term), repeatable=True)

    return leasing.claim(take, count)


def prune(keys: Keys, term: Term, size: int) -> Plan[int]:
    """Leave out of a claim that nobody has seen what is no more ours; how many are left."""
    where = (
        keys.data(term.queue),
        keys.ledger(term.queue, term.lease),
        keys.members(term.queue, term.lease),
        keys.receipts(term.queue),
    )
    decode = partial(ledger.granted, term)
    step = Call(_PRUNE, where, (term.owner, CHUNK), decode, repeatable=True)
    return leasing.prune(step, size)


def acknowledge(keys: Keys, term: Term, number: int, mark: str, *, dead: str = "") -> Plan[Settled]:
    """End claim *number*, whose batch is committed; nothing is done if it has ended before.

    *dead* is the dead-letter queue. Raises `QueueError` if the lease is another's, or another
    claim is open.
    """
    grave = check_dead_queue(dead or term.queue + DEAD_SUFFIX, of=term.queue)
    verdicts = keys.verdicts(term.queue, term.lease)
    where = (*_own(keys, term), verdicts, keys.queues, *keys.of(grave))
    where += (keys.receipts(term.queue),)
    args = (term.owner, number, mark, CHUNK, grave)
    step = Call(_ACKNOWLEDGE, where, args, partial(ledger.granted, term), repeatable=True)
    return leasing.acknowledge(step)


def judge(
    keys: Keys, queue: str, lease: str, number: int, verdicts: Sequence[tuple[str, str]]
) -> Plan[None]:
    """Say what is to become of messages: ``r<ms>`` to wait, ``d<reason>``, or ``''`` for done.

    Raises `QueueError` if claim *number* is not open.
    """
    where = (keys.ledger(queue, lease), keys.verdicts(queue, lease))
    for first in range(0, len(verdicts), CHUNK):
        words = ledger.flat(verdicts[first : first + CHUNK])
        results((yield (leasing.judge(where, queue, lease, number, words),)))


# ── what a claim has ─────────────────────────────────────────────────────────


def size(keys: Keys, term: Term) -> Call[int]:
    """Return how many messages the open claim has."""
    return Call("LLEN", (keys.members(term.queue, term.lease),), (), int, repeatable=True)


def opened(keys: Keys, term: Term) -> Call[Opened]:
    """Return who has the lease, and which claim is open."""
    return leasing.opened(keys.ledger(term.queue, term.lease))


def members(keys: Keys, term: Term, first: int, count: int) -> Call[list[Member]]:
    """Return messages of the open claim by their places in it."""
    where = (keys.members(term.queue, term.lease),)
    return Call("LRANGE", where, (first, first + count - 1), _members, repeatable=True)


def _own(keys: Keys, term: Term) -> tuple[str, ...]:
    queue, lease = term.queue, term.lease
    return (*keys.of(queue), keys.ledger(queue, lease), keys.members(queue, lease))


def _renewal(keys: Keys, term: Term, first: int, count: int) -> Call[Any]:
    args = (term.owner, term.lease_ms, term.hide_ms, first, count)
    where = (*_own(keys, term), keys.receipts(term.queue))
    return Call(_RENEW, where, args, partial(ledger.granted, term), repeatable=True)


def give_up(keys: Keys, queue: str, lease: str) -> Call[int]:
    """Let a claim be nobody's if its query is dead for too long; how many messages it had."""
    where = (keys.ledger(queue, lease), keys.members(queue, lease), keys.verdicts(queue, lease))
    return leasing.give_up(*where)


def _claimed(term: Term, reply: Any) -> Claim:
    return ledger.claimed(term, existing(term.queue, reply))


def _members(reply: list[bytes]) -> list[Member]:
    parts = (line.split(b" ", 2) for line in reply)
    return [Member(id, rc, digest) for rc, digest, id in parts]
