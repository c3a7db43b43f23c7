"""Migration of a queue to another, also of another protocol or on another server.

Plain Python on purpose. Measured on two cores that had other work: 100,000 messages of 100 bytes
took 11 to 27 s, and Spark 75 s to start; a loop of receive, add and delete came to 200 a second.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tambomq.bulk.moves import MoveBatch, Tally
from tambomq.chasqui.ops.add import Policy
from tambomq.clock import Deadline
from tambomq.errors import LocalProtocolError, QueueError, QueueFull, SettingsError
from tambomq.ids import letters
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.pipeline.address import Address
from tambomq.pipeline.transfer.chasqui import ChasquiEndpoint
from tambomq.pipeline.transfer.endpoints import (
    QueueCounts,
    QueueEndpoint,
    TransferSource,
    TransferTarget,
)
from tambomq.pipeline.transfer.gomq import GomqEndpoint
from tambomq.pipeline.transfer.rsmq import RsmqEndpoint
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops.journal import policy_for_queue
from tambomq.store.endpoint import endpoint
from tambomq.store.sync import Store

WAIT_S: Final = 10.0
_POLL_S: Final = 0.25
_RUN_LETTERS: Final = 16
_MOVE_LETTERS: Final = 16


@dataclass(frozen=True, slots=True)
class QueueLocation:
    """A queue on a server. *ns* is RSMQ's namespace."""

    address: Address
    url: str
    ns: str = Keys().ns

    @property
    def name(self) -> str:
        """A unique name of the queue, without a password."""
        ns = self.ns if self.address.protocol == "rsmq" else ""
        return f"{endpoint(self.url)} {ns} {self.address}"


@dataclass(slots=True)
class MigrationReport:
    """What a migration did."""

    moved: int
    """In this run."""
    left: QueueCounts
    """Messages that stayed in the source queue."""
    departed: Tally
    """Messages that have left since the migration began."""
    arrived: Tally
    """Messages that the target has stored since then."""
    made: bool
    """Whether the target queue was created."""


def endpoint_of(
    store: Store,
    place: QueueLocation,
    *,
    kind: str = "text",
    name: str = "",
    journal: bool | JournalBounds = False,
) -> QueueEndpoint:
    """Return the queue at *place* as a source or target.

    *journal*: messages are journalled by the script that stores them.
    """
    queue, protocol = place.address.queue, place.address.protocol
    match protocol:
        case "rsmq":
            chosen = policy_for_queue(place.ns, queue, journal)
            return RsmqEndpoint(store, Keys(place.ns), queue, chosen)
        case "chasqui":
            policy = Policy(journal=JournalPolicy.for_queue(protocol, queue, journal))
            return ChasquiEndpoint(store, queue, kind=kind, name=name, policy=policy)
        case _:
            return GomqEndpoint(store, queue, JournalPolicy.for_queue(protocol, queue, journal))


def move_name(source: QueueLocation, target: QueueLocation) -> str:
    """Return the id of the move at its source; raise `SettingsError` if both are one queue."""
    if source.name == target.name:
        raise SettingsError(f"{source.address} cannot be migrated to itself")
    return hashlib.sha256(target.name.encode()).hexdigest()[:_MOVE_LETTERS]


def migrate(
    source: TransferSource,
    target: TransferTarget,
    move: str,
    *,
    wait_s: float = WAIT_S,
    tick: Callable[[int], object] = lambda _: None,
) -> MigrationReport:
    """Move all messages that are not in flight, and wait *wait_s* seconds for those that are.

    A migration that is killed leaves one batch in transit; the next run of the same move begins
    with it. Raises `QueueError` if the tallies of both queues differ, or the target refuses.
    """
    source.count()
    made, moved = target.prepare(), 0
    deadline = Deadline(wait_s)
    while True:
        batch = _taken(source, target, move)
        if batch.rows:
            moved += _carry(source, target, move, batch)
            tick(moved)
            continue
        left = source.count()
        if deadline.passed or not (left.in_flight or (left.delayed and not target.knows_delays)):
            break
        time.sleep(min(_POLL_S, deadline.left_s))
    departed, arrived = source.left(move), target.arrivals(_query(batch.run)).tally
    if departed != arrived:
        raise QueueError(
            target.address.queue,
            f"{departed.count} messages left {source.address} and {arrived.count} arrived in "
            f"{target.address}, with digests {departed.sum:012x} and {arrived.sum:012x}: was one "
            "of the servers emptied meanwhile?",
        )
    # In this order: the target's record must outlast a batch that the source may send again.
    if source.over(move, batch.run):
        target.done(_query(batch.run))
    return MigrationReport(moved, left, departed, arrived, made)


def _taken(source: TransferSource, target: TransferTarget, move: str) -> MoveBatch:
    """Move a batch into transit; raise `QueueError` if the target has lost earlier ones."""
    # A new name each time, used only if the move is new: under an old name, batches numbered from
    # 1 again would look as if they were stored already.
    batch = source.take(move, letters(_RUN_LETTERS), later=False)
    if not batch.rows and target.knows_delays:
        batch = source.take(move, letters(_RUN_LETTERS), later=True)
    if batch.rows and target.arrivals(_query(batch.run)).last < batch.number - 1:
        raise QueueError(
            target.address.queue,
            f"{target.address} has no record of earlier batches from {source.address}; "
            f"{len(batch.rows)} messages are in transit: was its server emptied, or restored "
            "from an older copy?",
        )
    return batch


def _carry(source: TransferSource, target: TransferTarget, move: str, batch: MoveBatch) -> int:
    packed = target.pack(source.items(batch), source.now_ms())
    try:
        target.put(_query(batch.run), batch.number, "", packed)
    except (QueueFull, LocalProtocolError, QueueError) as refusal:
        # `QueueFull` would name options of a client.
        reason = f"{target.address} is full" if isinstance(refusal, QueueFull) else str(refusal)
        raise QueueError(
            target.address.queue,
            f"{reason}; {len(packed)} messages are in transit: run the same command again to "
            "resume the move",
        ) from refusal
    source.arrived(move, batch.number, target.tally(packed))
    return len(packed)


def _query(run: str) -> str:
    return f"move-{run}"
