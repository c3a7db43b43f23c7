"""One renewal of a worker's leases. It must finish well before they expire.

So its timeouts are a fraction of the lease, unlike those of other operations: a silent connection
is dropped while there is still time for a retry on another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

from tambomq.errors import TamboError
from tambomq.store.call import Plan
from tambomq.store.endpoint import Endpoint
from tambomq.store.sync import Store

log = logging.getLogger(__name__)

OnLost: TypeAlias = Callable[[list[str]], None]
"""Called with the ids whose leases are lost: taken over by another worker, or just settled.

It is called from a thread of the heartbeat and may neither block nor raise, nor use the
heartbeat. To reach an event loop, use `call_soon_threadsafe`.
"""


class Lease(Protocol):
    """How to renew a protocol's leases. Must be picklable to be renewed from a process."""

    @property
    def endpoint(self) -> Endpoint:
        """The server."""

    @property
    def every_s(self) -> float:
        """How often to renew; a third of the lease lets two renewals fail."""

    @property
    def queue(self) -> str:
        """Name of the queue, for log lines."""

    def renew(self, held: dict[str, str]) -> Plan[list[str]]:
        """Renew *held*, receipts by id; return the ids of lost leases."""


class Renewal:
    """Renews *held*, which other threads change meanwhile, and removes lost leases."""

    def __init__(
        self, lease: Lease, held: dict[str, str], report_lost: Callable[[dict[str, str]], None]
    ) -> None:
        self._lease, self._held, self._report_lost = lease, held, report_lost
        # A retry budget longer than the interval would only delay the next renewal.
        server = lease.endpoint.with_timeout(lease.every_s / 2)
        self._store = Store(server, patience_s=lease.every_s)

    def renew(self) -> None:
        """Renew all once; log a failure."""
        if not (held := self._held.copy()):
            return
        try:
            lost_ids = self._store.follow(self._lease.renew(held))
        except Exception as error:
            # Includes errors that nobody expects, and those of a log handler: it must go on.
            with suppress(Exception):
                log.warning(
                    "cannot renew %d leases of queue %r: %s",
                    *(len(held), self._lease.queue, error),
                    exc_info=not isinstance(error, TamboError),
                    extra={"queue": self._lease.queue, "count": len(held)},
                )
            return
        if lost := drop(self._held, {id: held[id] for id in lost_ids}):
            self._report_lost(lost)

    def close(self) -> None:
        """Close the connections."""
        self._store.close()


def drop(held: dict[str, str], lost: dict[str, str]) -> dict[str, str]:
    """Remove *lost* from *held*; return those that were still held.

    The same id with another receipt was received again meanwhile: it stays.
    """
    dropped = {}
    for id, receipt in lost.items():
        # Another thread may release it at any moment.
        with suppress(KeyError):
            if held[id] == receipt:
                del held[id]
                dropped[id] = receipt
    return dropped
