"""What a lake has kept goes into a queue again, in the order and, if wanted, at the pace it had.

A replay has an id. The queue remembers under it how far the replay has come, in the script that
takes a chunk: run again under the same id, it goes on where it was interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import msgspec

from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, JournalFull, QueueError, SettingsError
from tambomq.pipeline.bodies import from_payload
from tambomq.pipeline.moving import Item, Payload, Target
from tambomq.pipeline.picks import expression, quieten, sql_fault
from tambomq.rsmq.keys import check_lease

WHAT: Final = {"sent": "event = 'sent'", "dead": "source = 'dlq'", "all": "true"}
"""Which rows with bodies: those of sends, those of dead letters, or all."""
COLUMNS: Final = (
    "protocol",
    "queue",
    "source",
    "entry_id",
    "coalesce(id, '') AS id",
    "coalesce(name, '') AS name",
    "unix_millis(coalesce(at, recorded_at)) AS at_ms",
    "coalesce(delay_ms, 0L) AS delay_ms",
    "body",
)
# Entries of one millisecond differ in what stands behind it, a number that may be longer.
ORDER: Final = (
    "coalesce(at, recorded_at)",
    "recorded_at",
    "protocol",
    "queue",
    "source",
    "length(entry_id)",
    "entry_id",
)
_CHUNK, _CHUNK_BYTES = 500, 1 << 20
_SOON_S: Final = 0.05
"""What is due so soon goes now: one script for each message would be ten times the work."""


class Recorded(msgspec.Struct, frozen=True):
    """A row of bronze that has a body."""

    protocol: str
    queue: str
    source: str
    entry_id: str
    id: str
    name: str
    at_ms: int
    delay_ms: int
    body: bytes

    @property
    def place(self) -> bytes:
        """Where it was read: no other row was read there."""
        return f"{self.protocol}:{self.source}:{self.queue}:{self.entry_id}\n".encode()


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did."""

    id: str
    sent: int
    """In this run."""
    before: int
    """In those before it, under the same id."""
    origins: str
    """Where it stands what messages were called before; '' if their ids say it."""


def rows(bronze: Any, where: str, what: str = "sent") -> Iterator[Recorded]:
    """Yield the rows of *bronze*, a DataFrame, in order of time.

    Raises `SettingsError` for SQL that is wrong.
    """
    quieten()
    try:
        found = bronze.where("body IS NOT NULL").where(WHAT[what])
        if where:
            found = found.where(f"({where}\n)")
        found = found.orderBy(*map(expression, ORDER)).selectExpr(*COLUMNS)
        for row in found.toLocalIterator(prefetchPartitions=True):
            yield Recorded(*(*row[:-1], bytes(row[-1])))
    except Exception as error:
        if (fault := sql_fault(error)) is None:
            raise
        raise SettingsError(fault) from error


def replay(
    recorded: Iterable[Recorded],
    target: Target,
    id: str,
    *,
    speed: float | None = None,
    tick: Callable[[int], object] = lambda _: None,
) -> Replayed:
    """Send *recorded* to *target*, *speed* times as fast as it was; `None` for as fast as can be.

    Raises `QueueError` if other rows than these were replayed under *id* before, or the queue's
    journal is full.
    """
    return _Run(target, check_id(id), speed, tick).through(recorded)


def check_id(id: str) -> str:
    """Return *id* if it may name a replay; raise `SettingsError` if not."""
    try:
        return check_lease(id)
    except InvalidFormat as fault:
        raise SettingsError(f"--id: {fault}") from fault


class _Run:
    """One run of a replay."""

    def __init__(
        self, target: Target, id: str, speed: float | None, tick: Callable[[int], object]
    ) -> None:
        self._target, self._id, self._speed, self._tick = target, id, speed, tick
        self._query = f"replay-{id}"
        self._known = target.arrivals(self._query)
        self._position, self._mark, self._sent = 0, 0, 0
        self._held: list[Item] = []
        self._size = 0
        self._begun: tuple[int, float] | None = None

    def through(self, recorded: Iterable[Recorded]) -> Replayed:
        """Send all that was not sent before."""
        for row in recorded:
            if self._position >= self._known.last:
                self._await(row)
                self._held.append(self._item(row))
                self._size += len(row.body)
            self._position += 1
            self._mark = crc32(row.place, self._mark)
            if self._position == self._known.last and self._known.mark != f"{self._mark:08x}":
                raise self._others()
            if len(self._held) >= _CHUNK or self._size >= _CHUNK_BYTES:
                self._flush()
        if self._position < self._known.last:
            raise self._others()
        self._flush()
        self._target.done(self._query)
        origins = self._target.origins(self._query)
        return Replayed(self._id, self._sent, self._known.last, origins)

    def _await(self, row: Recorded) -> None:
        """Wait until it is time for *row*; what is held goes first."""
        if self._speed is None:
            return
        if self._begun is None:
            self._begun = row.at_ms, time.monotonic()
        first_ms, begun = self._begun
        wait_s = (row.at_ms - first_ms) / 1000 / self._speed - (time.monotonic() - begun)
        if wait_s > _SOON_S:
            self._flush()
            time.sleep(wait_s)

    def _flush(self) -> None:
        if not self._held:
            return
        if not self._sent:
            # Not before: who chooses nothing makes nothing.
            self._target.prepare()
        packed = self._target.pack(self._held, 0)
        try:
            self._target.put(self._query, self._position, f"{self._mark:08x}", packed)
        except JournalFull as full:
            raise self._unrecorded(full) from full
        self._sent += len(packed)
        self._held, self._size = [], 0
        self._tick(self._sent)

    def _item(self, row: Recorded) -> Item:
        is_job = row.protocol == "chasqui"
        old = row.id or row.place.decode().strip()
        return Item(
            from_payload(row.body) if is_job else row.body,
            # What it was called, and that it is not that one.
            f"{old}~{self._id}.{self._position + 1}",
            row.name,
            now_ms(),
            int(row.delay_ms / self._speed) if self._speed else 0,
            old,
            Payload(row.body) if is_job else None,
        )

    def _unrecorded(self, full: JournalFull) -> QueueError:
        sent = self._known.last + self._sent
        told = f"{full}; {sent} messages were sent, go on with --id {self._id}"
        return QueueError(self._target.address.queue, told)

    def _others(self) -> QueueError:
        return QueueError(
            self._target.address.queue,
            f"replay {self._id!r} has sent {self._known.last} other rows to {self._target.address} "
            "before: ask for the same as then, or name another --id",
        )
