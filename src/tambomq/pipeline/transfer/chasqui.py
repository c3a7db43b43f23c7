"""A ChasquiMQ queue as the source or target of a transfer."""

from __future__ import annotations

from collections.abc import Sequence

from tambomq.bulk import moves
from tambomq.bulk.moves import ArrivalRecord, MoveBatch, Tally
from tambomq.chasqui.bulk import move as move_ops
from tambomq.chasqui.bulk import scan as scan_ops
from tambomq.chasqui.bulk.move import InboundJob, OutboundJob
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys, check_name
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.wire.envelope import decode_envelope, encode_envelope
from tambomq.errors import InvalidFormat, RemoteProtocolError
from tambomq.journal.hooks import require_one_node
from tambomq.pipeline.address import Address
from tambomq.pipeline.transfer.bodies import from_payload, to_payload
from tambomq.pipeline.transfer.endpoints import QueueCounts, RawPayload, TransferItem
from tambomq.store.sync import Store


class ChasquiEndpoint:
    """The queue, as source and as target.

    *kind* is the payload type for bodies of other protocols, *name* their dispatch name.
    """

    knows_delays = True

    def __init__(
        self, store: Store, queue: str, *, kind: str = "text", name: str = "", policy: Policy
    ) -> None:
        self.address = Address("chasqui", queue)
        self._store, self._keys, self._policy = store, Keys(queue), policy
        self._kind, self._name = kind, check_name(name)

    def count(self) -> QueueCounts:
        """Count the jobs; a queue that does not exist has none."""
        length = self._store.run(scan_ops.length(self._keys.stream))
        pending = self._store.follow(move_ops.in_flight(self._keys))
        delayed = self._store.run(scan_ops.count(self._keys.delayed, "-inf", "+inf"))
        return QueueCounts(max(0, length - pending), delayed, pending)

    def now_ms(self) -> int:
        """Return the server's time."""
        return self._store.run(scan_ops.now())

    def take(self, move: str, run: str, *, later: bool) -> MoveBatch:
        """Move waiting jobs into transit, or with *later* those that are delayed."""
        cap = self._policy.events_cap
        if later:
            return self._store.follow(move_ops.take_later(self._keys, cap, move, run))
        return self._store.run(move_ops.take(self._keys, cap, move, run))

    def items(self, batch: MoveBatch) -> list[TransferItem]:
        """Return the jobs of a batch."""
        return [_item(move_ops.decode_outbound(row)) for row in batch.rows]

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
        """Return false: a queue needs no creation. Raises if its journal is on another node."""
        policy = self._policy.journal
        if policy and (journal := policy.of(self._keys.queue)):
            self._store.run(require_one_node(journal, self._keys.stream))
        return False

    def pack(self, items: Sequence[TransferItem], now_ms: int) -> list[InboundJob]:
        """Return jobs: those of this protocol unchanged, others with new envelopes."""
        here_ms = self.now_ms()
        due = [here_ms + each.due_ms - now_ms if each.due_ms else 0 for each in items]
        return [self._job(each, at, here_ms) for each, at in zip(items, due, strict=True)]

    def tally(self, packed: Sequence[InboundJob]) -> Tally:
        """Return the tally of what will be stored."""
        return moves.tally(each.envelope for each in packed)

    def put(self, query: str, number: int, checksum: str, packed: Sequence[InboundJob]) -> bool:
        """Store a batch; false if it was stored before."""
        now = self.now_ms()
        return self._store.run(
            move_ops.put(self._keys, self._policy, query, number, checksum, now, packed)
        )

    def arrivals(self, query: str) -> ArrivalRecord:
        """Return the record of a move into this queue."""
        return self._store.run(moves.arrivals(self._keys.fence(query)))

    def done(self, query: str) -> None:
        """Let the record of a finished move expire in a week."""
        self._store.run(moves.done(self._keys.fence(query)))

    def origins(self, query: str) -> str:  # noqa: ARG002  (as in all protocols)
        """Return '': the id of a replayed job contains the old one."""
        return ""

    def _job(self, item: TransferItem, due_ms: int, now_ms: int) -> InboundJob:
        due_ms = due_ms if due_ms > now_ms else 0
        if isinstance(item.native, OutboundJob):
            taken_ms = item.native.taken_ms if item.id else 0
            return InboundJob(item.id, item.name, item.native.envelope, due_ms, taken_ms)
        is_payload = isinstance(item.native, RawPayload)
        payload = item.native.data if is_payload else to_payload(item.body, self._kind)
        # Deterministic, without clock or random: a batch that is packed again must be the same.
        envelope = encode_envelope(Envelope(item.id, payload, item.sent_ms))
        return InboundJob(item.id, _legal(item.name) or self._name, envelope, due_ms)

    def _move_keys(self, move: str) -> tuple[str, str]:
        return self._keys.move(move), self._keys.transit(move)


def _item(job: OutboundJob) -> TransferItem:
    try:
        envelope = decode_envelope(job.envelope)
    except RemoteProtocolError:
        # Not an envelope: move the bytes unchanged; a worker will dead-letter them.
        return TransferItem(job.envelope, "", job.name, 0, job.due_ms, "", job)
    body = from_payload(envelope.payload)
    return TransferItem(body, envelope.id, job.name, envelope.created_at_ms, job.due_ms, "", job)


def _legal(name: str) -> str:
    try:
        return check_name(name)
    except InvalidFormat:
        return ""
