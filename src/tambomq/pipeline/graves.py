"""Which queues have dead letters, and what can be asked of those, whatever their protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from tambomq.chasqui.ops import Policy
from tambomq.errors import InvalidFormat, SettingsError
from tambomq.journal.recording import Bounds, bounds_of
from tambomq.pipeline.address import Address
from tambomq.pipeline.dead import Letter
from tambomq.pipeline.grave_chasqui import ChasquiGrave
from tambomq.pipeline.grave_rsmq import RsmqGrave
from tambomq.pipeline.picks import Pick
from tambomq.rsmq import queue_ops
from tambomq.rsmq.keys import DEAD_SUFFIX, NAMESPACE, Keys
from tambomq.rsmq.recorded import keys_of
from tambomq.spark import chasqui_tables
from tambomq.store.redrives import Moved, Redrive, Undone
from tambomq.store.sync import Store

PROTOCOLS: Final = ("chasqui", "rsmq")
"""Those that have dead letters."""


class Grave(Protocol):
    """The dead letters of one queue."""

    address: Address

    @property
    def key(self) -> str:
        """The column that names a letter."""

    @property
    def order(self) -> tuple[str, ...]:
        """What letters are ordered by, as SQL."""

    def frame(self, spark: Any) -> Any:
        """Return the letters as a DataFrame."""

    def bound(self, until: str) -> str:
        """Return, as SQL, which letters were there at *until*."""

    def packed(self, key: str, value: bytes | str) -> bytes:
        """Return a new body as it is stored."""

    def until(self) -> str:
        """Return what tells the letters there are from those that die later."""

    def letters(self) -> Iterator[Letter]:
        """Yield all dead letters, the oldest first."""

    def begin(self, told: Redrive) -> Redrive:
        """Begin a redrive, or return the one that has this id."""

    def known(self) -> list[Redrive]:
        """Return the redrives that are remembered."""

    def settle(self, told: Redrive, state: str) -> None:
        """Say what has become of a redrive."""

    def move(self, told: Redrive, picks: Sequence[Pick]) -> Moved:
        """Let letters be delivered again."""

    def undo(self, told: Redrive) -> Undone:
        """Put back what nobody has taken."""

    def fates(self, told: Redrive) -> Counter[str]:
        """Return what has become of those that went ahead."""


class Yard:
    """All graves of a server. *ns* is RSMQ's namespace, *dead* a dead-letter queue's own name.

    *journal*: what goes back into a queue is recorded, in the same step.
    """

    def __init__(
        self,
        store: Store,
        url: str,
        *,
        ns: str = NAMESPACE,
        dead: str = "",
        journal: bool | Bounds = False,
    ) -> None:
        self._store, self._url, self._dead, self._ns = store, url, dead, ns
        self._keys, self._journal = Keys(ns), bounds_of(journal)

    def grave(self, address: Address) -> Grave:
        """Return the dead letters of a queue."""
        if address.protocol == "rsmq":
            try:
                keys = keys_of(self._ns, address.queue, self._journal)
                return RsmqGrave(self._store, keys, address.queue, self._dead)
            except InvalidFormat as fault:
                raise SettingsError(str(fault)) from fault
        if self._dead:
            raise SettingsError("--dead is for RSMQ: other dead letters have a place of their own")
        return ChasquiGrave(self._store, self._url, address.queue, Policy(journal=self._journal))

    def graves(self) -> Iterator[Grave]:
        """Yield those of all queues; RSMQ's where the dead-letter queue has its usual name."""
        for queue in sorted(chasqui_tables.names(self._store)):
            yield self.grave(Address("chasqui", queue))
        for queue in self._store.run(queue_ops.list_queues(self._keys)):
            if queue.endswith(DEAD_SUFFIX):
                # Somebody else may have put a name there that is no queue's.
                with suppress(SettingsError):
                    yield self.grave(Address("rsmq", queue.removesuffix(DEAD_SUFFIX)))
