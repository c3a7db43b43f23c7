"""A lease in the hands of a driver: taken when first needed, kept by a thread, given up at the end.

Whoever was thought dead and is replaced finds that out here: each call of its raises from then on.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from tambomq.errors import LeaseTaken, QueueError, StoreError
from tambomq.ids import letters
from tambomq.spark import alive
from tambomq.spark.columns import Columns
from tambomq.spark.options import Place
from tambomq.store.call import Call, Plan
from tambomq.store.ledger import Standing, Term
from tambomq.store.sync import Store

T = TypeVar("T")

BEAT_S: Final = 2.0
"""A query that wants a lease which another has sees within this time whether that one is alive."""
RENEW_S: Final = 10.0
"""What is claimed is renewed so often at least: others take what lies still for 30 s."""
_LOOK_S: Final = 0.2
_TOKEN_LETTERS: Final = 22


@dataclass(frozen=True, slots=True)
class Places:
    """Some messages of a claim, by their places in it."""

    claim: int
    mark: str
    first: int
    count: int


class Leased(Protocol):
    """What can be leased: plain values, since Spark sends it to its workers."""

    @property
    def columns(self) -> Columns:
        """What a row has."""

    @property
    def keys(self) -> Any:
        """What the operations want before the term."""

    @property
    def ops(self) -> Any:
        """The protocol's ``lease_ops``."""

    def waiting(self, store: Store, queue: str, lease: str) -> int:
        """Return how many messages could be claimed now; raise if there is no such queue."""

    def acknowledge(self, term: Term, number: int, mark: str) -> Plan[Any]:
        """End a claim, as the source's options say."""

    def rows(self, store: Store, term: Term, at: Places) -> pa.RecordBatch:
        """Return messages of a claim.

        The column ``fault`` says where one is not as it was claimed.
        """


class Lease:
    """A lease of this process. Nothing is asked of the server before `take`."""

    def __init__(self, source: Leased, place: Place, queue: str, name: str, lease_s: float) -> None:
        owner = letters(_TOKEN_LETTERS)
        self.term = Term(queue, name, owner, alive.label(), int(lease_s * 1000))
        self.lost = 0
        """Messages of the open claim that others have had while nobody kept it."""
        self.store = place.open()
        self._renew_s = min(RENEW_S, self.term.lease_ms / 3000)
        self._beat_s = min(self._renew_s, BEAT_S)
        # Not the one for other calls: those wait for a reply as long as a lease lasts.
        self._renewals = place.open_for_renewals(self._beat_s)
        self._source = source
        self._taken = False
        self._over = threading.Event()
        self._error: QueueError | None = None
        self._keeper = threading.Thread(target=self._keep, name="tambo-lease", daemon=True)

    def take(self) -> Standing:
        """Have the lease, or go on having it; where it stands.

        One whose query does not beat any more is waited for, unless it is seen to be dead.
        Raises `LeaseTaken` if that query is alive, `LeaseLost` if this one was replaced.
        """
        if self._error is not None:
            raise self._error
        standing = self._attach()
        if not self._taken:
            lost = self.follow(self._source.ops.renew(self._source.keys, self.term))
            self.lost = lost if standing.lapsed else 0
            self._taken = True
            self._keeper.start()
        return standing

    def run(self, call: Call[T]) -> T:
        """Make *call*."""
        return self.store.run(call)

    def follow(self, plan: Plan[T]) -> T:
        """Make the trips of *plan*."""
        return self.store.follow(plan)

    def close(self) -> None:
        """Let another have the lease at once. What was claimed stays hidden for a while."""
        self._over.set()
        if self._taken:
            self._keeper.join()
            # Without a server it ends by itself.
            with suppress(StoreError):
                self.run(self._source.ops.resign(self._source.keys, self.term))
        self.store.close()
        self._renewals.close()

    def _attach(self) -> Standing:
        if self._taken:
            # Not `attach`: that would take a lease back which another has had meanwhile.
            self.run(self._source.ops.beat(self._source.keys, self.term))
        until_ms, gone = None, ""
        while True:
            call = self._source.ops.attach(self._source.keys, self.term, gone=gone)
            standing: Standing = self.run(call)
            if standing.ours:
                return standing
            if alive.is_gone(standing.label):
                gone = standing.label
                continue
            if until_ms is not None and standing.until_ms > until_ms:
                raise LeaseTaken(self.term.queue, self.term.lease, standing.label)
            until_ms = standing.until_ms
            time.sleep(min(_LOOK_S, max(0.01, (until_ms - standing.now_ms) / 1000)))

    def _keep(self) -> None:
        renewed = due = time.monotonic()
        while not self._over.wait(max(0.0, due + self._beat_s - time.monotonic())):
            # From the beginning of this one: if it has to be repeated, the next is not late.
            due = time.monotonic()
            try:
                if due - renewed < self._renew_s:
                    self._renewals.run(self._source.ops.beat(self._source.keys, self.term))
                    continue
                self._renewals.follow(self._source.ops.renew(self._source.keys, self.term))
                renewed = due
            except StoreError:
                # It may be back in time; the lease knows when it is not.
                continue
            except QueueError as error:
                self._error = error
                return
