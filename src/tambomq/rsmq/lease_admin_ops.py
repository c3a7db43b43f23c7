"""What people ask of leases on RSMQ queues, as calls and plans nobody has made yet."""

from __future__ import annotations

from functools import partial
from typing import Any

from tambomq.rsmq import lease_ops
from tambomq.rsmq.keys import Keys
from tambomq.store import leasing, ledger
from tambomq.store.call import Call, Plan, load_script, results
from tambomq.store.ledger import CHUNK, Holding

_GIVE_BACK = load_script(
    "tambomq.rsmq", "lease_give_back", "loose", "member", "receipts", "claimed"
)


def listed(keys: Keys, queue: str) -> Plan[list[Holding]]:
    """Return the leases on *queue*, by name."""

    def look(lease: str) -> tuple[str, Call[int]]:
        members = keys.members(queue, lease)
        return keys.ledger(queue, lease), Call("LLEN", (members,), (), int, repeatable=True)

    return leasing.listing(keys.leases(queue), look)


def release(keys: Keys, queue: str, lease: str, *, gone: str = "") -> Plan[int]:
    """Give the messages of a lease that is nobody's back now; how many became visible.

    Its query, should it come back, is told that they are lost. Raises `LeaseTaken` while it is
    alive; *gone* is a holder that is known to be dead.
    """
    where = (
        *(*keys.of(queue), keys.ledger(queue, lease), keys.members(queue, lease)),
        keys.receipts(queue),
    )

    def give_back(first: int) -> Call[Any]:
        decode = partial(ledger.loose, queue, lease)
        return Call(_GIVE_BACK, where, (first, CHUNK, gone), decode, repeatable=True)

    given = yield from leasing.walk(give_back)
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
    known: bool = results((yield (leasing.forget(where, queue, lease, gone),)))[0]
    return known
