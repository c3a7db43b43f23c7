"""How a query holds messages of a key, as calls and plans nobody has made yet.

What a lease and a claim are: `tambomq.store.ledger`. A lease is a consumer with one peer, and has
one key. Its claim is a batch that was handed out and is not acknowledged: if the peer is silent
for too long, whoever disconnects it puts the batch back, as any other's.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from tambomq.errors import QueueError
from tambomq.gomq import keys, leave_ops, ops
from tambomq.gomq.model import Options
from tambomq.store import leasing, ledger
from tambomq.store.call import Call, Plan, Script, load_script, results
from tambomq.store.ledger import Claim, Opened, Settled, Standing, Term

MOST: Final = 1000
"""A claim is one batch, and has no more messages than one may have."""
ROOM: Final = 8 << 20
"""Nor about more bytes."""


def _load(name: str, *parts: str) -> Script:
    return load_script("tambomq.gomq", f"lease_{name}", *parts)


_CLAIM = _load("claim", "claims", "put_back", "kept", "unhand", "take")
_RENEW = _load("renew", "kept")
_ACKNOWLEDGE = _load("acknowledge", "claims", "kept")
_MEMBERS = _load("members", "kept")
_RELEASE = _load("release")


def attach(options: Options, term: Term, *, gone: str = "") -> Call[Standing]:  # noqa: ARG001  (as in all protocols)
    """Have the lease, unless another query has it now; *gone* is one that is known to be dead."""
    return leasing.attach(keys.leases(term.queue), keys.ledger(term.queue, term.lease), term, gone)


def beat(options: Options, term: Term) -> Call[Any]:
    """Keep the lease and its peer connected; raise `QueueError` if another has the lease."""
    who = keys.lessee(term.lease)
    where = (
        *(keys.last_action(who), keys.handed(who, who)),
        keys.ledger(term.queue, term.lease),
    )
    args = (term.owner, term.lease_ms, _hide_ms(options), ops.keep_s(options))
    return Call(_RENEW, where, args, partial(ledger.granted, term), repeatable=True)


def renew(options: Options, term: Term) -> Plan[int]:
    """Keep the lease; 1 if its claim was taken away, else 0."""
    return int(results((yield (beat(options, term),)))[0][0])


def resign(options: Options, term: Term) -> Call[bool]:  # noqa: ARG001  (as in all protocols)
    """Let another have the lease at once; false if another has it already."""
    return leasing.resign(keys.ledger(term.queue, term.lease), term)


def release_expired(options: Options, queue: str, *, but: str = "") -> Plan[dict[str, int]]:
    """Give up claims of queries that are dead for too long; which claim of each lease.

    Their peers are disconnected: what only they were owed is in the main queue again.
    """
    plan = leasing.release_expired(keys.leases(queue), partial(give_up, queue), but)
    gone = yield from plan
    if gone:
        for lease in gone:
            yield from leave_ops.reap(keys.lessee(lease), options)
    return gone


def claim(options: Options, term: Term, number: int, mark: str, count: int) -> Plan[Claim]:
    """Take up to *count* (at most `MOST`) messages as claim *number*; or tell what it has.

    The lease is subscribed, and what waits in the main queue is dispatched. Raises `QueueError`
    if the lease is another's, at another claim, or has another key already.
    """
    who, most = keys.lessee(term.lease), min(count, MOST)
    kept = Call("SMEMBERS", (keys.subscriptions(who),), (), ledger.names, repeatable=True)
    subscribed = results((yield (beat(options, term), kept)))[1]
    if set(subscribed) - {term.queue}:
        told = f"lease {term.lease!r} has another key than {term.queue!r}: name one for each"
        raise QueueError(term.queue, told)
    come = ops.subscribe(term.queue, who, who, options), ops.dispatch(term.queue, observed=True)
    known, done = results((yield come))
    if known is None or done.is_unsettled:
        yield from leave_ops.settle(term.queue)
        results((yield come))
    where = (
        *(keys.last_action(who), keys.handed(who, who)),
        *(keys.messages(term.queue, who, who), keys.ledger(term.queue, term.lease)),
    )
    args = (
        *(term.owner, number, mark, most, ROOM),
        *(_hide_ms(options), ops.keep_s(options), term.queue),
    )
    call = Call(_CLAIM, where, args, partial(ledger.claimed, term), repeatable=True)
    got: Claim = results((yield (call,)))[0]
    return got


def prune(options: Options, term: Term, size: int) -> Plan[int]:  # noqa: ARG001  (as in all protocols)
    """Return how many messages a claim has that nobody has seen: it is whole, or there is none."""
    yield from ()
    return size


def acknowledge(options: Options, term: Term, number: int, mark: str) -> Plan[Settled]:  # noqa: ARG001  (as in all protocols)
    """End claim *number*, whose batch is committed; nothing is done if it has ended before.

    Raises `QueueError` if the lease is another's, or another claim is open.
    """
    who = keys.lessee(term.lease)
    where = (keys.handed(who, who), keys.ledger(term.queue, term.lease))
    args = (term.owner, number, mark)
    call = Call(_ACKNOWLEDGE, where, args, partial(ledger.granted, term), repeatable=True)
    _, *counts = results((yield (call,)))[0]
    return ledger.settled([counts])


def members(term: Term, mark: str, first: int, count: int) -> Call[list[bytes]]:
    """Return messages of the open claim by their places in it; none if it is another by now."""
    who = keys.lessee(term.lease)
    where = (keys.handed(who, who),)
    return Call(_MEMBERS, where, (mark, first, count), list, repeatable=True)


def size(options: Options, term: Term) -> Call[int]:  # noqa: ARG001  (as in all protocols)
    """Return how many messages the open claim has."""
    where = (keys.ledger(term.queue, term.lease),)
    return Call("HGET", where, ("size",), _size, repeatable=True)


def opened(options: Options, term: Term) -> Call[Opened]:  # noqa: ARG001  (as in all protocols)
    """Return who has the lease, and which claim is open."""
    return leasing.opened(keys.ledger(term.queue, term.lease))


def give_up(queue: str, lease: str) -> Call[int]:
    """Let a claim be nobody's if its query is dead for too long; which it was, 0 for none."""
    return Call(_RELEASE, (keys.ledger(queue, lease),), (), int, repeatable=True)


def _hide_ms(options: Options) -> int:
    return int(options.peer_timeout_s * 1000)


def _size(reply: bytes | None) -> int:
    return int(reply or 0)
