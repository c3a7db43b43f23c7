"""An RSMQ queue as the source or target of a transfer."""

from __future__ import annotations

from collections.abc import Sequence

from tambomq.bulk import moves
from tambomq.bulk.moves import ArrivalRecord, MoveBatch, Tally
from tambomq.journal.hooks import require_one_node
from tambomq.journal.policy import JournalPolicy
from tambomq.pipeline.address import Address
from tambomq.pipeline.transfer.endpoints import QueueCounts, TransferItem
from tambomq.rsmq.bulk import move as move_ops
from tambomq.rsmq.bulk import scan as scan_ops
from tambomq.rsmq.bulk.move import InboundMessage
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import DEFAULT_DELAY, DEFAULT_VT, MAX_SECONDS, UNLIMITED
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.store.sync import Store

_MOMENT_LETTERS = 10


class RsmqEndpoint:
    """The queue, as source and as target."""

    knows_delays = True

    def __init__(
        self, store: Store, keys: Keys, queue: str, journal: JournalPolicy | None = None
    ) -> None:
        self.address = Address("rsmq", queue)
        self._store, self._keys, self._queue, self._journal = store, keys, queue, journal
        self._skip = {False: 0, True: 0}

    def count(self) -> QueueCounts:
        """Count the messages; raise `QueueNotFound`."""
        found = self._store.follow(queue_ops.stats(self._keys, self._queue))
        return QueueCounts(found.visible, found.delayed, found.in_flight)

    def now_ms(self) -> int:
        """Return the server's time."""
        return self._store.run(scan_ops.now())

    def take(self, move: str, run: str, *, later: bool) -> MoveBatch:
        """Move visible messages into transit, or with *later* those that are delayed."""
        while True:
            skip = self._skip[later]
            # Each run has a new name: under an old one, batches would be numbered from 1 again.
            name = f"{run}-{skip}" if skip else run
            call = move_ops.take(
                self._keys, self._queue, move, name, skip=skip, later=later, journal=self._journal
            )
            batch = self._store.run(call)
            self._skip[later] += batch.skipped
            if batch.rows:
                return batch
            if not batch.skipped:
                # Start from the first again next time: the skipped messages may be free by then.
                self._skip[later] = 0
                return batch

    def items(self, batch: MoveBatch) -> list[TransferItem]:
        """Return the messages of a batch."""
        found = [move_ops.decode_outbound(row) for row in batch.rows]
        return [TransferItem(m.body, m.id, "", _sent_ms(m.id), m.due_ms) for m in found]

    def arrived(self, move: str, number: int, what: Tally) -> None:
        """Remove a batch from transit: the target has stored it."""
        self._store.run(moves.arrived(*self._move_keys(move), number, what))

    def left(self, move: str) -> Tally:
        """Return the tally of batches that have left and been stored since the move began."""
        return self._store.run(moves.left(self._move_keys(move)[0]))

    def over(self, move: str, run: str) -> bool:
        """Delete the record of the move; false if a batch is still in transit."""
        return self._store.run(moves.over(*self._move_keys(move), run))

    def prepare(self) -> bool:
        """Create the queue if it does not exist; true if it was created."""
        if self._journal and (journal := self._journal.of(self._queue)):
            self._store.run(require_one_node(journal, self._keys.messages(self._queue)))
        if self._store.run(scan_ops.exists(self._keys, self._queue)):
            return False
        limits = {"vt": DEFAULT_VT, "delay": DEFAULT_DELAY, "maxsize": UNLIMITED}
        self._store.run(queue_ops.create(self._keys, self._queue, **limits))
        return True

    def pack(self, items: Sequence[TransferItem], now_ms: int) -> list[InboundMessage]:
        """Return the messages with the rest of their delays."""
        max_ms = MAX_SECONDS * 1000
        return [
            InboundMessage(each.body, min(max_ms, max(0, each.due_ms - now_ms)), each.old)
            for each in items
        ]

    def tally(self, packed: Sequence[InboundMessage]) -> Tally:
        """Return the tally of what will be stored."""
        return moves.tally(each.body for each in packed)

    def put(self, query: str, number: int, checksum: str, packed: Sequence[InboundMessage]) -> bool:
        """Store a batch; false if it was stored before."""
        return self._store.run(
            move_ops.put(
                self._keys, self._queue, query, number, checksum, packed, journal=self._journal
            )
        )

    def arrivals(self, query: str) -> ArrivalRecord:
        """Return the record of a move into this queue."""
        return self._store.run(moves.arrivals(self._keys.fence(self._queue, query)))

    def done(self, query: str) -> None:
        """Let the record of a finished move expire in a week."""
        self._store.run(moves.done(self._keys.fence(self._queue, query)))

    def origins(self, query: str) -> str:
        """Return the key of the hash that maps new ids to old ones."""
        return self._keys.origins(self._queue, query)

    def _move_keys(self, move: str) -> tuple[str, str]:
        return self._keys.move(self._queue, move), self._keys.transit(self._queue, move)


def _sent_ms(id: str) -> int:
    try:
        return int(id[:_MOMENT_LETTERS], 36) // 1000
    except ValueError:
        return 0
