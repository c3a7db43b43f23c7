"""Where the dead letters of an RSMQ queue are, and the way back from there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from tambomq.errors import QueueNotFound, SettingsError
from tambomq.pipeline.address import Address
from tambomq.pipeline.dead import Letter
from tambomq.pipeline.picks import Pick
from tambomq.rsmq import redrive_ops, scan_ops
from tambomq.rsmq.keys import DEAD_SUFFIX, Keys, check_dead_queue
from tambomq.rsmq.ops import reason_of
from tambomq.rsmq.replies import moment, tally
from tambomq.store.redrives import CHUNK, Moved, Redrive, Undone
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
"""What ``--where`` sees: what the table ``messages`` has that means something here, and why."""


class RsmqGrave:
    """The dead-letter queue of a queue."""

    key = "id"
    order = ("died_at", "id")

    def __init__(self, store: Store, keys: Keys, queue: str, dead: str = "") -> None:
        self.address = Address("rsmq", queue)
        self._store, self._keys, self._queue = store, keys, queue
        self.dead = check_dead_queue(dead or queue + DEAD_SUFFIX, of=queue)

    def frame(self, spark: Any) -> Any:
        """Return the letters; the format has no reasons, so they are read here."""
        columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        for ids, scores, found, reasons in self._pages():
            columns["queue"] += [self._queue] * len(ids)
            columns["id"] += [id.decode("utf-8", "replace") for id in ids]
            columns["body"] += found[::3]
            told = [_told(each) for each in reasons]
            columns["reason"] += [reason for reason, _ in told]
            columns["traceback"] += [trace for _, trace in told]
            columns["died_at"] += [moment(each) * 1000 for each in scores]
            columns["rc"] += [tally(each) for each in found[1::3]]
        return spark.createDataFrame(pa.table(columns, schema=SCHEMA))

    def bound(self, until: str) -> str:
        """Return, as SQL, which letters were there at *until*."""
        if not _MILLISECONDS.fullmatch(until):
            raise SettingsError(f"what Redis has of the redrive is damaged: it ends at {until!r}")
        return f"died_at <= timestamp_millis({until})"

    def packed(self, key: str, value: bytes | str) -> bytes:
        """Return a new body: text as UTF-8."""
        try:
            return value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError as fault:
            told = f"--set: the new body of {key} is no text: {fault}; nothing was moved"
            raise SettingsError(told) from fault

    def until(self) -> str:
        """Return the server's time: who dies later is visible later."""
        if not self._store.run(scan_ops.exists(self._keys, self._queue)):
            raise QueueNotFound(self._queue)
        return str(self._store.run(scan_ops.now()))

    def letters(self) -> Iterator[Letter]:
        """Yield all dead letters, the oldest first. Their reason is all that is known of them."""
        for ids, scores, _, reasons in self._pages():
            for id, score, why in zip(ids, scores, reasons, strict=True):
                reason, trace = _told(why)
                words = (id.decode("utf-8", "replace"), "", "", reason)
                yield Letter(str(self.address), *words, moment(score), trace or "")

    def begin(self, told: Redrive) -> Redrive:
        """Begin a redrive, or go on with the one that has this id."""
        return self._store.run(redrive_ops.begin(self._keys, self._queue, told))

    def known(self) -> list[Redrive]:
        """Return the redrives that are remembered."""
        return self._store.follow(redrive_ops.known(self._keys, self._queue))

    def settle(self, told: Redrive, state: str) -> None:
        """Say what has become of a redrive."""
        self._store.run(redrive_ops.settle(self._keys, self._queue, told.id, state))

    def move(self, told: Redrive, picks: Sequence[Pick]) -> Moved:
        """Let letters be received again."""
        held = refused = 0
        moved = Moved(told.moved)
        for first in range(0, len(picks), CHUNK):
            letters = [redrive_ops.Letter(*pick) for pick in picks[first : first + CHUNK]]
            moved = self._store.run(redrive_ops.move(self._keys, self._queue, told, letters))
            held, refused = held + moved.held, refused + moved.refused
        return Moved(moved.total, held, refused)

    def undo(self, told: Redrive) -> Undone:
        """Put back what nobody has received."""
        return self._store.follow(redrive_ops.undo(self._keys, self._queue, told))

    def fates(self, told: Redrive) -> Counter[str]:
        """Return what has become of those that went ahead.

        They are ``waiting``, ``running`` (received, and not deleted), ``died`` or ``done``.
        """
        call = redrive_ops.first_moved(self._keys, self._queue, told.id, told.canary)
        ids = [id.encode() for id in self._store.run(call)]
        if not ids:
            return Counter()
        here = self._store.run(scan_ops.present(self._keys, self._queue, ids))
        dead = self._store.run(scan_ops.present(self._keys, self.dead, ids))
        found = self._store.run(scan_ops.contents(self._keys, self._queue, ids))
        fates: Counter[str] = Counter()
        for is_here, is_dead, rc in zip(here, dead, found[1::3], strict=True):
            if is_here:
                fates["running" if tally(rc) else "waiting"] += 1
            else:
                fates["died" if is_dead else "done"] += 1
        return fates

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
            # All of one moment are passed over by counting them: they have the same score.
            last = scores[-1]
            same = scores.count(last)
            low, skip = last.decode(), same + (skip if low == last.decode() else 0)


def _told(why: bytes | None) -> tuple[str, str | None]:
    return reason_of(why or b"")
