"""A check that a server not only answers, but takes writes: what health means for a queue."""

from __future__ import annotations

from typing import Final

from tambomq.errors import StoreRefused
from tambomq.store.call import Call, Plan, results
from tambomq.store.keys import PROBE

_KEPT_MS: Final = 5000


def answers() -> Call[bool]:
    """Ask for a PONG."""
    return Call("PING", (), (), bool, repeatable=True)


def takes_writes() -> Plan[None]:
    """Write a tiny key that expires. Raises `StoreError` with the server's reason.

    `StoreReadOnly` for a full disk, missing replicas or a replica, `StoreFull` without memory. A
    login that may not write this key proves less: that the server answers.
    """
    write = Call("SET", (PROBE,), (b"", "PX", _KEPT_MS), bool, repeatable=True)
    outcome, answered = yield (write, answers())
    if isinstance(outcome, StoreRefused) and str(outcome).startswith("NOPERM"):
        outcome = answered
    results([outcome])
