"""What people ask of leases on ChasquiMQ queues, as calls and plans nobody has made yet."""

from __future__ import annotations

from functools import partial
from typing import Any

from tambomq.chasqui import lease_ops, worker_ops
from tambomq.chasqui.keys import RETURNED, Keys, lessee
from tambomq.chasqui.lease_ops import Group
from tambomq.chasqui.options import CLAIM_IDLE_MS
from tambomq.chasqui.worker_ops import Seat
from tambomq.store import leasing, ledger
from tambomq.store.call import Call, Plan, load_script, results
from tambomq.store.ledger import CHUNK, Holding

_GIVE_BACK = load_script("tambomq.chasqui", "lease_give_back", "loose")


def listed(group: Group, queue: str) -> Plan[list[Holding]]:  # noqa: ARG001  (as in all protocols)
    """Return the leases on *queue*, by name."""
    keys = Keys(queue)

    def look(lease: str) -> tuple[str, Call[int]]:
        return keys.ledger(lease), Call("LLEN", (keys.members(lease),), (), int, repeatable=True)

    return leasing.listing(keys.leases, look)


def release(group: Group, queue: str, lease: str, *, gone: str = "") -> Plan[int]:
    """Give the jobs of a lease that is nobody's back now; how many anybody may claim.

    Its query, should it come back, is told that they are lost. Raises `LeaseTaken` while it is
    alive; *gone* is a holder that is known to be dead.
    """
    keys = Keys(queue)
    where = (keys.stream, keys.ledger(lease), keys.members(lease))

    def give_back(first: int) -> Call[Any]:
        args = (first, CHUNK, group.name, lessee(lease), RETURNED, CLAIM_IDLE_MS, gone)
        decode = partial(ledger.loose, queue, lease)
        return Call(_GIVE_BACK, where, args, decode, repeatable=True)

    given = yield from leasing.walk(give_back)
    results((yield (lease_ops.give_up(keys, lease),)))
    return given


def forget(
    group: Group, queue: str, lease: str, *, give_back: bool = False, gone: str = ""
) -> Plan[bool]:
    """Remove a lease for good, and its consumer from the group; false if there is none.

    Raises `LeaseTaken` while it is alive, and `QueueError` while a claim is open, unless its jobs
    are to be given back.
    """
    if give_back:
        yield from release(group, queue, lease, gone=gone)
    keys = Keys(queue)
    where = (keys.leases, keys.ledger(lease), keys.members(lease), keys.verdicts(lease))
    known: bool = results((yield (leasing.forget(where, queue, lease, gone),)))[0]
    results((yield (worker_ops.leave(Seat(keys, group.name, lessee(lease))),)))
    return known
