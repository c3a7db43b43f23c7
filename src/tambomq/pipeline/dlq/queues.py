"""Dead-letter queues of all protocols behind one interface, `DeadLetterQueue`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from tambomq.bulk.histogram import DeadLetterInfo
from tambomq.bulk.redrives import MoveResult, Redrive, UndoResult
from tambomq.chasqui.ops.add import Policy
from tambomq.errors import InvalidFormat, SettingsError
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.pipeline.address import Address
from tambomq.pipeline.dlq.chasqui import ChasquiDlq
from tambomq.pipeline.dlq.rsmq import RsmqDlq
from tambomq.pipeline.dlq.selection import Selection
from tambomq.rsmq.keys import DEAD_SUFFIX, NAMESPACE, Keys
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.rsmq.ops.journal import policy_for_queue
from tambomq.spark.formats.chasqui import streams as chasqui_tables
from tambomq.store.sync import Store

PROTOCOLS: Final = ("chasqui", "rsmq")
"""Those that have dead letters."""


class DeadLetterQueue(Protocol):
    """The dead letters of one queue."""

    address: Address

    @property
    def key(self) -> str:
        """The column that identifies a dead letter."""

    @property
    def order(self) -> tuple[str, ...]:
        """The order of dead letters, as SQL."""

    def frame(self, spark: Any) -> Any:
        """Return the dead letters as a DataFrame."""

    def bound(self, until: str) -> str:
        """Return the SQL condition for dead letters that existed at *until*."""

    def packed(self, key: str, value: bytes | str) -> bytes:
        """Return a new body in the form in which it is stored."""

    def until(self) -> str:
        """Return a bound that all current dead letters lie below, and later ones do not."""

    def letters(self) -> Iterator[DeadLetterInfo]:
        """Yield all dead letters, the oldest first."""

    def begin(self, redrive: Redrive) -> Redrive:
        """Start a redrive, or return the one that has this id already."""

    def known(self) -> list[Redrive]:
        """Return the redrives that Redis still has a record of."""

    def settle(self, redrive: Redrive, state: str) -> None:
        """Set the state of a redrive."""

    def move(self, redrive: Redrive, selections: Sequence[Selection]) -> MoveResult:
        """Move dead letters back to their queue."""

    def undo(self, redrive: Redrive) -> UndoResult:
        """Move redriven messages that no worker has received yet back to the dead letters."""

    def outcomes(self, redrive: Redrive) -> Counter[str]:
        """Return how many canary messages are waiting, running, retrying, dead or done."""


class DeadLetterQueues:
    """The dead-letter queues of a server.

    *ns* is RSMQ's namespace, *dead* the name of an RSMQ dead-letter queue if it is not the usual
    one. With *journal*, messages that go back are recorded in their queue's journal.
    """

    def __init__(
        self,
        store: Store,
        url: str,
        *,
        ns: str = NAMESPACE,
        dead: str = "",
        journal: bool | JournalBounds = False,
    ) -> None:
        self._store, self._url, self._dead, self._ns = store, url, dead, ns
        self._keys, self._journal = Keys(ns), journal

    def of(self, address: Address) -> DeadLetterQueue:
        """Return the dead letters of the queue at *address*."""
        if address.protocol == "rsmq":
            try:
                journal = policy_for_queue(self._ns, address.queue, self._journal)
                return RsmqDlq(self._store, self._keys, address.queue, self._dead, journal)
            except InvalidFormat as fault:
                raise SettingsError(str(fault)) from fault
        if self._dead:
            raise SettingsError(
                "--dead is for RSMQ only: the dead letters of ChasquiMQ are always in one place"
            )
        journal = JournalPolicy.for_queue("chasqui", address.queue, self._journal)
        return ChasquiDlq(self._store, self._url, address.queue, Policy(journal=journal))

    def all(self) -> Iterator[DeadLetterQueue]:
        """Yield those of all queues; of RSMQ where the dead-letter queue has its usual name."""
        for queue in sorted(chasqui_tables.names(self._store)):
            yield self.of(Address("chasqui", queue))
        for queue in self._store.run(queue_ops.list_queues(self._keys)):
            if queue.endswith(DEAD_SUFFIX):
                # The set of queues may hold names that are not legal, written by other clients.
                with suppress(SettingsError):
                    yield self.of(Address("rsmq", queue.removesuffix(DEAD_SUFFIX)))
