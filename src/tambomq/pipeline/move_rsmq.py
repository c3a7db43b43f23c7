"""An RSMQ queue that messages leave or come into."""

from __future__ import annotations

from collections.abc import Sequence

from tambomq.journal.recording import beside
from tambomq.pipeline.address import Address
from tambomq.pipeline.moving import Count, Item
from tambomq.rsmq import move_ops, queue_ops, scan_ops
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import DEFAULT_DELAY, DEFAULT_VT, MAX_SECONDS, UNLIMITED
from tambomq.rsmq.move_ops import Coming
from tambomq.store import transit
from tambomq.store.sync import Store
from tambomq.store.transit import Arrivals, Batch, Tally

_MOMENT_LETTERS = 10


class RsmqEnd:
    """A queue, as where messages come from and where they go."""

    knows_delays = True

    def __init__(self, store: Store, keys: Keys, queue: str) -> None:
        self.address = Address("rsmq", queue)
        self._store, self._keys, self._queue = store, keys, queue
        self._skip = {False: 0, True: 0}

    def count(self) -> Count:
        """Return what is there; raise `QueueNotFound`."""
        found = self._store.follow(queue_ops.stats(self._keys, self._queue))
        return Count(found.visible, found.delayed, found.in_flight)

    def now_ms(self) -> int:
        """Return the time of its server."""
        return self._store.run(scan_ops.now())

    def take(self, move: str, run: str, *, later: bool) -> Batch:
        """Let messages leave that wait; *later* those that are delayed."""
        while True:
            skip = self._skip[later]
            # A name is offered once: under one that was used, batches would count from 1 again.
            name = f"{run}-{skip}" if skip else run
            call = move_ops.take(self._keys, self._queue, move, name, skip=skip, later=later)
            batch = self._store.run(call)
            self._skip[later] += batch.looked_at
            if batch.rows:
                return batch
            if not batch.looked_at:
                # Next time from the first: what was passed over may be free by then.
                self._skip[later] = 0
                return batch

    def items(self, batch: Batch) -> list[Item]:
        """Return the messages of a batch."""
        found = [move_ops.leaving(row) for row in batch.rows]
        return [Item(m.body, m.id, "", _sent_ms(m.id), m.due_ms) for m in found]

    def arrived(self, move: str, number: int, what: Tally) -> None:
        """Forget a batch that has arrived."""
        self._store.run(transit.arrived(*self._place(move), number, what))

    def left(self, move: str) -> Tally:
        """Return what has left and arrived since the move began."""
        return self._store.run(transit.left(self._place(move)[0]))

    def over(self, move: str, run: str) -> bool:
        """Forget the move; false if it is not over."""
        return self._store.run(transit.over(*self._place(move), run))

    def prepare(self) -> bool:
        """Make the queue if it is not there; true if so."""
        if self._keys.recording and (journal := self._keys.recording.of(self._queue)):
            self._store.run(beside(journal, self._keys.messages(self._queue)))
        if self._store.run(scan_ops.exists(self._keys, self._queue)):
            return False
        limits = {"vt": DEFAULT_VT, "delay": DEFAULT_DELAY, "maxsize": UNLIMITED}
        self._store.run(queue_ops.create(self._keys, self._queue, **limits))
        return True

    def pack(self, items: Sequence[Item], now_ms: int) -> list[Coming]:
        """Return messages with what is left of their delays."""
        most = MAX_SECONDS * 1000
        return [
            Coming(each.body, min(most, max(0, each.due_ms - now_ms)), each.old) for each in items
        ]

    def tally(self, packed: Sequence[Coming]) -> Tally:
        """Return the tally of what will be stored."""
        return transit.tally(each.body for each in packed)

    def put(self, query: str, number: int, mark: str, packed: Sequence[Coming]) -> bool:
        """Take a batch; false if it came before."""
        return self._store.run(move_ops.put(self._keys, self._queue, query, number, mark, packed))

    def arrivals(self, query: str) -> Arrivals:
        """Return what is remembered of a move into it."""
        return self._store.run(transit.arrivals(self._keys.fence(self._queue, query)))

    def done(self, query: str) -> None:
        """Forget a move into it in a week."""
        self._store.run(transit.done(self._keys.fence(self._queue, query)))

    def origins(self, query: str) -> str:
        """Return the key where it stands what messages were called before."""
        return self._keys.origins(self._queue, query)

    def _place(self, move: str) -> tuple[str, str]:
        return self._keys.move(self._queue, move), self._keys.transit(self._queue, move)


def _sent_ms(id: str) -> int:
    try:
        return int(id[:_MOMENT_LETTERS], 36) // 1000
    except ValueError:
        return 0
