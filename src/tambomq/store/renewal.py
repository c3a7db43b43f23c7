"""One renewal of what a worker holds: it must be done well before the lease is over.

So its time-outs are a fraction of the lease, and not those of other operations: a connection that
has gone silent is given up while there is time for a second try on another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

from tambomq.errors import TamboError
from tambomq.store.call import Plan
from tambomq.store.connect import Endpoint
from tambomq.store.sync import Store

log = logging.getLogger(__name__)

OnLost: TypeAlias = Callable[[list[str]], None]
"""Told the ids that turned out to be another's, or settled just now, and are held no longer.

It is called from a thread of the heartbeat and may neither wait nor raise, nor
use the heartbeat: an event loop is told with `call_soon_threadsafe`.
"""


class Lease(Protocol):
    """What to renew, where, and how often. It pickles, if a process is to renew it."""

    @property
    def endpoint(self) -> Endpoint:
        """Where the server is."""

    @property
    def every_s(self) -> float:
        """How often to renew; a third of the lease lets two renewals fail."""

    @property
    def what(self) -> str:
        """What is held, for log lines: ``queue 'orders'``."""

    def renew(self, held: dict[str, str]) -> Plan[list[str]]:
        """Renew *held*, receipts by id; return the ids that are not ours any more."""


class Renewal:
    """Renews *held*, which others change meanwhile, and drops what turns out to be lost."""

    def __init__(
        self, lease: Lease, held: dict[str, str], tell_lost: Callable[[dict[str, str]], None]
    ) -> None:
        self._lease, self._held, self._tell_lost = lease, held, tell_lost
        # Longer patience than the time to the next renewal would only make it late.
        server = lease.endpoint.with_timeout(lease.every_s / 2)
        self._store = Store(server, patience_s=lease.every_s)

    def renew(self) -> None:
        """Renew all, once; a failure is logged."""
        if not (held := self._held.copy()):
            return
        try:
            gone = self._store.follow(self._lease.renew(held))
        except Exception as error:
            # Whatever a credential provider raises, too: nobody else would renew.
            surprise = not isinstance(error, TamboError)
            what = self._lease.what
            log.warning(
                "cannot renew %d leases of %s: %s", len(held), what, error, exc_info=surprise
            )
            return
        if lost := drop(self._held, {id: held[id] for id in gone}):
            self._tell_lost(lost)

    def close(self) -> None:
        """Hang up."""
        self._store.close()


def drop(held: dict[str, str], lost: dict[str, str]) -> dict[str, str]:
    """Hold *lost* no longer; return those that were still held.

    The same id with another receipt was received anew meanwhile: it stays.
    """
    dropped = {}
    for id, receipt in lost.items():
        # It may be let go at any moment, by another thread.
        with suppress(KeyError):
            if held[id] == receipt:
                del held[id]
                dropped[id] = receipt
    return dropped
