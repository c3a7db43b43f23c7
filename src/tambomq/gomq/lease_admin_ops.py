"""What people ask of leases on GOMQ's keys, as calls and plans nobody has made yet."""

from __future__ import annotations

from functools import partial

from tambomq.gomq import keys, lease_ops, leave_ops, ops
from tambomq.gomq.model import Options
from tambomq.store import leasing, ledger
from tambomq.store.call import Call, Plan, load_script, results
from tambomq.store.ledger import Holding, Term

_GIVE_BACK = load_script("tambomq.gomq", "lease_give_back", "loose")


def listed(options: Options, queue: str) -> Plan[list[Holding]]:
    """Return the leases on the key *queue*, by name."""

    def look(lease: str) -> tuple[str, Call[int]]:
        return keys.ledger(queue, lease), lease_ops.size(options, Term(queue, lease, ""))

    return leasing.listing(keys.leases(queue), look)


def release(options: Options, queue: str, lease: str, *, gone: str = "") -> Plan[int]:
    """Give the messages of a lease that is nobody's back now; how many its claim had.

    What others have received too is not in the main queue again. Raises `LeaseTaken` while it is
    alive; *gone* is a holder that is known to be dead.
    """
    who = keys.lessee(lease)
    where = (keys.last_action(who), keys.ledger(queue, lease))
    decode = partial(ledger.loose, queue, lease)
    call = Call(_GIVE_BACK, where, (ops.keep_s(options), gone), decode, repeatable=True)
    size = int(results((yield (call,)))[0][0])
    if results((yield (lease_ops.give_up(queue, lease),)))[0]:
        yield from leave_ops.reap(who, options)
    return size


def forget(
    options: Options, queue: str, lease: str, *, give_back: bool = False, gone: str = ""
) -> Plan[bool]:
    """Remove a lease for good, and its subscription; false if there is none.

    Raises `LeaseTaken` while it is alive, and `QueueError` while a claim is open, unless its
    messages are to be given back. What waited for it alone is in the main queue again.
    """
    if give_back:
        yield from release(options, queue, lease, gone=gone)
    where = (keys.leases(queue), keys.ledger(queue, lease))
    known: bool = results((yield (leasing.forget(where, queue, lease, gone),)))[0]
    yield from leave_ops.unsubscribe(queue, keys.lessee(lease))
    return known
