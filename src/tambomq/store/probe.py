"""Health checks of a server: that it answers, and that it takes writes."""

from __future__ import annotations

from typing import Final

from tambomq.errors import StoreRefused
from tambomq.store.call import Call, Plan, results
from tambomq.store.keys import PROBE

_KEPT_MS: Final = 5000


def answers() -> Call[bool]:
    """Return whether the server answers PING."""
    return Call("PING", (), (), bool, repeatable=True)


def takes_writes() -> Plan[None]:
    """Write a tiny key that expires. Raises `StoreError` with the server's reason.

    `StoreReadOnly` for a full disk, missing replicas or a replica, `StoreFull` without memory. If
    an ACL forbids this key, it only checks that the server answers.
    """
    write = Call("SET", (PROBE,), (b"", "PX", _KEPT_MS), bool, repeatable=True)
    outcome, answered = yield (write, answers())
    if isinstance(outcome, StoreRefused) and outcome.kind == "NOPERM":
        outcome = answered
    results([outcome])
