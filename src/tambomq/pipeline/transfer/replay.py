"""Replay of recorded messages from the lake into a queue, in order and, if wanted, at their pace.

A replay has an id. The script that stores a chunk also stores the position of the replay under that
id, so a replay that is run again with the same id resumes where it was interrupted.
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
from tambomq.pipeline.dlq.selection import expression, quieten, sql_fault
from tambomq.pipeline.transfer.bodies import from_payload
from tambomq.pipeline.transfer.endpoints import RawPayload, TransferItem, TransferTarget
from tambomq.rsmq.keys import check_lease

WHAT: Final = {"sent": "event = 'sent'", "dead": "source = 'dlq'", "all": "true"}
"""Conditions for rows with bodies: of sends, of dead letters, or all."""
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
# Entry ids of one millisecond differ in their sequence number: the longer one is larger.
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
"""Rows due within this time go together: one script call for each would cost ten times as much."""


class RecordedMessage(msgspec.Struct, frozen=True):
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
        """The position where it was read: unique in the lake."""
        return f"{self.protocol}:{self.source}:{self.queue}:{self.entry_id}\n".encode()


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay."""

    id: str
    sent: int
    """Messages sent by this run."""
    before: int
    """Messages sent by earlier runs with the same id."""
    origins: str
    """The key that maps new ids to old ones; '' if new ids contain the old."""


def rows(bronze: Any, condition: str, what: str = "sent") -> Iterator[RecordedMessage]:
    """Yield the rows of *bronze*, a DataFrame, in order of time.

    Raises `SettingsError` for SQL that is wrong.
    """
    quieten()
    try:
        found = bronze.where("body IS NOT NULL").where(WHAT[what])
        if condition:
            found = found.where(f"({condition}\n)")
        found = found.orderBy(*map(expression, ORDER)).selectExpr(*COLUMNS)
        for row in found.toLocalIterator(prefetchPartitions=True):
            yield RecordedMessage(*(*row[:-1], bytes(row[-1])))
    except Exception as error:
        if (fault := sql_fault(error)) is None:
            raise
        raise SettingsError(fault) from error


def replay(
    recorded: Iterable[RecordedMessage],
    target: TransferTarget,
    id: str,
    *,
    speed: float | None = None,
    tick: Callable[[int], object] = lambda _: None,
) -> ReplayResult:
    """Send *recorded* to *target* at *speed* times its original pace; `None` for no pauses.

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
        self, target: TransferTarget, id: str, speed: float | None, tick: Callable[[int], object]
    ) -> None:
        self._target, self._id, self._speed, self._tick = target, id, speed, tick
        self._query = f"replay-{id}"
        self._known = target.arrivals(self._query)
        self._position, self._checksum, self._sent = 0, 0, 0
        self._held: list[TransferItem] = []
        self._size = 0
        self._begun: tuple[int, float] | None = None

    def through(self, recorded: Iterable[RecordedMessage]) -> ReplayResult:
        """Send all that was not sent before."""
        for row in recorded:
            if self._position >= self._known.last:
                self._await(row)
                self._held.append(self._item(row))
                self._size += len(row.body)
            self._position += 1
            self._checksum = crc32(row.place, self._checksum)
            if (
                self._position == self._known.last
                and self._known.checksum != f"{self._checksum:08x}"
            ):
                raise self._others()
            if len(self._held) >= _CHUNK or self._size >= _CHUNK_BYTES:
                self._flush()
        if self._position < self._known.last:
            raise self._others()
        self._flush()
        self._target.done(self._query)
        origins = self._target.origins(self._query)
        return ReplayResult(self._id, self._sent, self._known.last, origins)

    def _await(self, row: RecordedMessage) -> None:
        """Flush, then sleep until *row* is due."""
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
            # Only now, so that a replay without rows creates no queue.
            self._target.prepare()
        packed = self._target.pack(self._held, 0)
        try:
            self._target.put(self._query, self._position, f"{self._checksum:08x}", packed)
        except JournalFull as full:
            raise self._unrecorded(full) from full
        self._sent += len(packed)
        self._held, self._size = [], 0
        self._tick(self._sent)

    def _item(self, row: RecordedMessage) -> TransferItem:
        is_job = row.protocol == "chasqui"
        old = row.id or row.place.decode().strip()
        return TransferItem(
            from_payload(row.body) if is_job else row.body,
            # The old id, with a suffix that makes it another message.
            f"{old}~{self._id}.{self._position + 1}",
            row.name,
            now_ms(),
            int(row.delay_ms / self._speed) if self._speed else 0,
            old,
            RawPayload(row.body) if is_job else None,
        )

    def _unrecorded(self, full: JournalFull) -> QueueError:
        sent = self._known.last + self._sent
        reason = f"{full}; {sent} messages were sent, resume with --id {self._id}"
        return QueueError(self._target.address.queue, reason)

    def _others(self) -> QueueError:
        return QueueError(
            self._target.address.queue,
            f"replay {self._id!r} has sent {self._known.last} other rows to {self._target.address} "
            "before: use the same options as then, or another --id",
        )
