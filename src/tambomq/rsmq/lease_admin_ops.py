"""What people ask of leases on RSMQ queues, as calls and plans nobody has made yet."""

from __future__ import annotations

from functools import partial

from tambomq.rsmq import lease_ops
from tambomq.rsmq.keys import Keys
from tambomq.store import ledger
from tambomq.store.call import Call, Plan, load_script, results
from tambomq.store.ledger import CHUNK, Holding

_GIVE_BACK = load_script("tambomq.rsmq", "lease_give_back", "member")
_FORGET = load_script("tambomq.rsmq", "lease_forget")


def listed(keys: Keys, queue: str) -> Plan[list[Holding]]:
    """Return the leases on *queue*, by name."""

    def look(lease: str) -> tuple[str, Call[int]]:
        members = keys.members(queue, lease)
        return keys.ledger(queue, lease), Call("LLEN", (members,), (), int, repeatable=True)

    return ledger.listing(keys.leases(queue), look)


def release(keys: Keys, queue: str, lease: str, *, gone: str = "") -> Plan[int]:
    """Give the messages of a lease that is nobody's back now; how many became visible.

    Its query, should it come back, is told that they are lost. Raises `LeaseTaken` while it is
    alive; *gone* is a holder that is known to be dead.
    """
    where = (*keys.of(queue), keys.ledger(queue, lease), keys.members(queue, lease))
    given = first = 0
    while True:
        decode = partial(ledger.loose, queue, lease)
        call = Call(_GIVE_BACK, where, (first, CHUNK, gone), decode, repeatable=True)
        seen, visible = results((yield (call,)))[0]
        given, first = given + int(visible), first + int(seen)
        if seen < CHUNK:
            break
    results((yield (lease_ops.give_up(keys, queue, lease),)))
    return given


def forget(
    keys: Keys, queue: str, lease: str, *, give_back: bool = False, gone: str = ""
) -> Plan[bool]:
    """Remove a lease for good; false if there is none.

    Raises `LeaseTaken` while it is alive, and `QueueError` while a claim is open, unless its
    messages are to be given back.
    """
    if give_back:
        yield from release(keys, queue, lease, gone=gone)
    where = (
        *(keys.leases(queue), keys.ledger(queue, lease)),
        *(keys.members(queue, lease), keys.verdicts(queue, lease)),
    )
    decode = partial(ledger.forgotten, queue, lease)
    known: bool = results((yield (Call(_FORGET, where, (lease, gone), decode, repeatable=True),)))[
        0
    ]
    return known
