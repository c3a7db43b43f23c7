"""A ChasquiMQ queue that jobs leave or come into."""

from __future__ import annotations

from collections.abc import Sequence

from tambomq.chasqui import move_ops, scan_ops
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys, check_name
from tambomq.chasqui.move_ops import Coming, Leaving
from tambomq.chasqui.ops import Policy
from tambomq.chasqui.wire import decode_envelope, encode_envelope
from tambomq.errors import InvalidFormat, RemoteProtocolError
from tambomq.journal.keys import Keys as JournalKeys
from tambomq.journal.recording import beside
from tambomq.pipeline.address import Address
from tambomq.pipeline.bodies import from_payload, to_payload
from tambomq.pipeline.moving import Count, Item, Payload
from tambomq.store import transit
from tambomq.store.sync import Store
from tambomq.store.transit import Arrivals, Batch, Tally


class ChasquiEnd:
    """A queue, as where jobs come from and where they go.

    *kind* says what bodies of others become, *name* what these are dispatched by.
    """

    knows_delays = True

    def __init__(
        self, store: Store, queue: str, *, kind: str = "text", name: str = "", policy: Policy
    ) -> None:
        self.address = Address("chasqui", queue)
        self._store, self._keys, self._policy = store, Keys(queue), policy
        self._kind, self._name = kind, check_name(name)

    def count(self) -> Count:
        """Return what is there: a queue needs no making."""
        length = self._store.run(scan_ops.length(self._keys.stream))
        pending = self._store.follow(move_ops.in_flight(self._keys))
        delayed = self._store.run(scan_ops.count(self._keys.delayed, "-inf", "+inf"))
        return Count(max(0, length - pending), delayed, pending)

    def now_ms(self) -> int:
        """Return the time of its server."""
        return self._store.run(scan_ops.now())

    def take(self, move: str, run: str, *, later: bool) -> Batch:
        """Let jobs leave that wait; *later* those that are delayed."""
        cap = self._policy.events_cap
        if later:
            return self._store.follow(move_ops.take_later(self._keys, cap, move, run))
        return self._store.run(move_ops.take(self._keys, cap, move, run))

    def items(self, batch: Batch) -> list[Item]:
        """Return the jobs of a batch."""
        return [_item(move_ops.leaving(row)) for row in batch.rows]

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
        """There is nothing to make."""
        if self._policy.journal:
            journal = JournalKeys("chasqui", self._keys.queue)
            self._store.run(beside(journal, self._keys.stream))
        return False

    def pack(self, items: Sequence[Item], now_ms: int) -> list[Coming]:
        """Return jobs: those of this protocol as they were, others as new ones."""
        here = self.now_ms()
        due = [here + each.due_ms - now_ms if each.due_ms else 0 for each in items]
        return [self._job(each, at, here) for each, at in zip(items, due, strict=True)]

    def tally(self, packed: Sequence[Coming]) -> Tally:
        """Return the tally of what will be stored."""
        return transit.tally(each.envelope for each in packed)

    def put(self, query: str, number: int, mark: str, packed: Sequence[Coming]) -> bool:
        """Take a batch; false if it came before."""
        now = self.now_ms()
        return self._store.run(
            move_ops.put(self._keys, self._policy, query, number, mark, now, packed)
        )

    def arrivals(self, query: str) -> Arrivals:
        """Return what is remembered of a move into it."""
        return self._store.run(transit.arrivals(self._keys.fence(query)))

    def done(self, query: str) -> None:
        """Forget a move into it in a week."""
        self._store.run(transit.done(self._keys.fence(query)))

    def origins(self, query: str) -> str:  # noqa: ARG002  (as in all protocols)
        """Return '': a job's id says what it was called before."""
        return ""

    def _job(self, item: Item, due_ms: int, now_ms: int) -> Coming:
        due_ms = due_ms if due_ms > now_ms else 0
        if isinstance(item.native, Leaving):
            taken_ms = item.native.taken_ms if item.id else 0
            return Coming(item.id, item.name, item.native.envelope, due_ms, taken_ms)
        is_payload = isinstance(item.native, Payload)
        payload = item.native.data if is_payload else to_payload(item.body, self._kind)
        # From what is known of it alone: a batch that is packed again must be the same.
        envelope = encode_envelope(Envelope(item.id, payload, item.sent_ms))
        return Coming(item.id, _legal(item.name) or self._name, envelope, due_ms)

    def _place(self, move: str) -> tuple[str, str]:
        return self._keys.move(move), self._keys.transit(move)


def _item(job: Leaving) -> Item:
    try:
        envelope = decode_envelope(job.envelope)
    except RemoteProtocolError:
        # No job at all: it goes as it is, and dies where jobs are expected.
        return Item(job.envelope, "", job.name, 0, job.due_ms, "", job)
    body = from_payload(envelope.payload)
    return Item(body, envelope.id, job.name, envelope.created_at_ms, job.due_ms, "", job)


def _legal(name: str) -> str:
    try:
        return check_name(name)
    except InvalidFormat:
        return ""
