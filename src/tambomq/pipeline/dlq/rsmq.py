"""The dead letters of an RSMQ queue, for `redrive`: listed, moved back, put back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from tambomq.bulk.histogram import DeadLetterInfo
from tambomq.bulk.redrives import CHUNK, MoveResult, Redrive, UndoResult
from tambomq.errors import QueueNotFound, SettingsError
from tambomq.journal.policy import JournalPolicy
from tambomq.pipeline.address import Address
from tambomq.pipeline.dlq.selection import Selection
from tambomq.rsmq.bulk import redrive as redrive_ops
from tambomq.rsmq.bulk import scan as scan_ops
from tambomq.rsmq.keys import DEAD_SUFFIX, Keys, check_dead_queue
from tambomq.rsmq.ops.messages import reason_of
from tambomq.rsmq.ops.replies import score_to_ms, to_count
from tambomq.store.sync import Store

_MILLISECONDS: Final = re.compile(r"[0-9]{1,16}")
_TIME: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        pa.field("queue", pa.string()),
        pa.field("id", pa.string()),
        pa.field("body", pa.binary()),
        pa.field("reason", pa.string()),
        pa.field("died_at", _TIME),
        pa.field("rc", pa.int64()),
        pa.field("traceback", pa.string()),
    ]
)
"""The columns for ``--where``: those of the table ``messages`` that apply, and the reason."""


class RsmqDlq:
    """The dead-letter queue of a queue."""

    key = "id"
    order = ("died_at", "id")

    def __init__(
        self,
        store: Store,
        keys: Keys,
        queue: str,
        dead: str = "",
        journal: JournalPolicy | None = None,
    ) -> None:
        self.address = Address("rsmq", queue)
        self._store, self._keys, self._queue, self._journal = store, keys, queue, journal
        self.dead = check_dead_queue(dead or queue + DEAD_SUFFIX, of=queue)

    def frame(self, spark: Any) -> Any:
        """Return the dead letters; read here, since the Spark format ``rsmq`` has no reasons."""
        columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        for ids, scores, found, reasons in self._pages():
            columns["queue"] += [self._queue] * len(ids)
            columns["id"] += [id.decode("utf-8", "replace") for id in ids]
            columns["body"] += found[::3]
            parsed = [_reason_and_trace(each) for each in reasons]
            columns["reason"] += [reason for reason, _ in parsed]
            columns["traceback"] += [trace for _, trace in parsed]
            columns["died_at"] += [score_to_ms(each) * 1000 for each in scores]
            columns["rc"] += [to_count(each) for each in found[1::3]]
        return spark.createDataFrame(pa.table(columns, schema=SCHEMA))

    def bound(self, until: str) -> str:
        """Return the SQL condition for dead letters that existed at *until*."""
        if not _MILLISECONDS.fullmatch(until):
            raise SettingsError(
                f"the record of the redrive in Redis is damaged: until is {until!r}"
            )
        return f"died_at <= timestamp_millis({until})"

    def packed(self, key: str, value: bytes | str) -> bytes:
        """Return a new body: text as UTF-8."""
        try:
            return value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError as fault:
            text = f"--set: the new body of {key} is not text: {fault}; nothing was moved"
            raise SettingsError(text) from fault

    def until(self) -> str:
        """Return the server's time: messages that die later have a larger score."""
        if not self._store.run(scan_ops.exists(self._keys, self._queue)):
            raise QueueNotFound(self._queue)
        return str(self._store.run(scan_ops.now()))

    def letters(self) -> Iterator[DeadLetterInfo]:
        """Yield all dead letters, the oldest first; RSMQ has no names for them."""
        for ids, scores, _, reasons in self._pages():
            for id, score, why in zip(ids, scores, reasons, strict=True):
                reason, trace = _reason_and_trace(why)
                words = (id.decode("utf-8", "replace"), "", "", reason)
                yield DeadLetterInfo(str(self.address), *words, score_to_ms(score), trace or "")

    def begin(self, redrive: Redrive) -> Redrive:
        """Start a redrive, or return the one that has this id already."""
        return self._store.run(redrive_ops.begin(self._keys, self._queue, redrive))

    def known(self) -> list[Redrive]:
        """Return the redrives that Redis still has a record of."""
        return self._store.follow(redrive_ops.known(self._keys, self._queue))

    def settle(self, redrive: Redrive, state: str) -> None:
        """Set the state of a redrive."""
        self._store.run(redrive_ops.settle(self._keys, self._queue, redrive.id, state))

    def move(self, redrive: Redrive, selections: Sequence[Selection]) -> MoveResult:
        """Move dead letters back to the queue."""
        held = refused = 0
        moved = MoveResult(redrive.moved)
        for first in range(0, len(selections), CHUNK):
            letters = [
                redrive_ops.RedrivenMessage(*selection)
                for selection in selections[first : first + CHUNK]
            ]
            moved = self._store.run(
                redrive_ops.move(self._keys, self._queue, redrive, letters, journal=self._journal)
            )
            held, refused = held + moved.held, refused + moved.refused
        return MoveResult(moved.total, held, refused)

    def undo(self, redrive: Redrive) -> UndoResult:
        """Move messages that no consumer has received back to the dead letters."""
        return self._store.follow(
            redrive_ops.undo(self._keys, self._queue, redrive, journal=self._journal)
        )

    def outcomes(self, redrive: Redrive) -> Counter[str]:
        """Count canary messages that are ``waiting``, ``running``, ``died`` or ``done``.

        One that was received and not deleted is running.
        """
        call = redrive_ops.first_moved(self._keys, self._queue, redrive.id, redrive.canary)
        ids = [id.encode() for id in self._store.run(call)]
        if not ids:
            return Counter()
        here = self._store.run(scan_ops.present(self._keys, self._queue, ids))
        dead = self._store.run(scan_ops.present(self._keys, self.dead, ids))
        found = self._store.run(scan_ops.contents(self._keys, self._queue, ids))
        outcomes: Counter[str] = Counter()
        for is_here, is_dead, rc in zip(here, dead, found[1::3], strict=True):
            if is_here:
                outcomes["running" if to_count(rc) else "waiting"] += 1
            else:
                outcomes["died" if is_dead else "done"] += 1
        return outcomes

    def _pages(self) -> Iterator[tuple[list[bytes], list[bytes], list[Any], list[Any]]]:
        """Yield ids, scores, contents and reasons, a page at a time."""
        low, skip = "-inf", 0
        while True:
            page = scan_ops.page(self._keys, self.dead, low, "+inf", skip)
            ids, scores = self._store.run(page)
            if not ids:
                return
            contents = scan_ops.contents(self._keys, self.dead, ids)
            found, reasons = self._store.run_all(
                [contents, redrive_ops.reasons(self._keys, self.dead, ids)]
            )
            yield ids, scores, found, reasons
            # Messages with the score of the last one are skipped by count.
            last = scores[-1]
            same = scores.count(last)
            low, skip = last.decode(), same + (skip if low == last.decode() else 0)


def _reason_and_trace(why: bytes | None) -> tuple[str, str | None]:
    return reason_of(why or b"")
