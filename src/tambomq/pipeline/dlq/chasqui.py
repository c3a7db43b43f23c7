"""The dead letters of a ChasquiMQ queue, for `redrive`: listed, moved back, put back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from tambomq.bulk.histogram import DeadLetterInfo
from tambomq.bulk.redrives import MoveResult, Redrive, UndoResult
from tambomq.chasqui.bulk import redrive as redrive_ops
from tambomq.chasqui.bulk import scan as scan_ops
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.ops.dlq import PAGE, peek
from tambomq.chasqui.wire.envelope import decode_envelope
from tambomq.chasqui.wire.msgpack import UNREADABLE, encode_payload
from tambomq.chasqui.wire.records import read_event
from tambomq.clock import now_ms
from tambomq.errors import RemoteProtocolError, SettingsError
from tambomq.pipeline.address import Address
from tambomq.pipeline.dlq.selection import Selection
from tambomq.store.sync import Store

_ENTRY_ID: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_NOTHING: Final = "0-0"
_AT_ONCE: Final = 1000
_ENDS: Final = {"completed": "done", "dlq": "died", "retry-scheduled": "retrying"}


class ChasquiDlq:
    """The dead letters of a queue."""

    key = "dlq_id"
    order = (
        "cast(substring_index(dlq_id, '-', 1) AS DECIMAL(20))",
        "cast(substring_index(dlq_id, '-', -1) AS DECIMAL(20))",
    )

    def __init__(self, store: Store, url: str, queue: str, policy: Policy) -> None:
        self.address = Address("chasqui", queue)
        self._store, self._url, self._keys, self._policy = store, url, Keys(queue), policy
        self._last_state: dict[str, str] = {}
        self._read_up_to = ""

    def frame(self, spark: Any) -> Any:
        """Return the table ``dlq``; its column ``value`` is the payload as JSON."""
        reader = spark.read.format("chasqui").option("url", self._url).option("table", "dlq")
        # A JSON list, since a name may have commas in it.
        queue = msgspec.json.encode([self._keys.queue]).decode()
        return reader.option("queue", queue).option("payload", "msgpack").load()

    def bound(self, until: str) -> str:
        """Return the SQL condition for dead letters that existed at *until*."""
        if not (match := _ENTRY_ID.fullmatch(until)):
            raise SettingsError(
                f"the record of the redrive in Redis is damaged: until is {until!r}"
            )
        ms, seq = match.groups()
        high, low = self.order
        return f"({high} < {ms} OR ({high} = {ms} AND {low} <= {seq}))"

    def packed(self, key: str, value: bytes | str) -> bytes:
        """Return a new payload: text is JSON, bytes are MessagePack."""
        try:
            if isinstance(value, str):
                return encode_payload(msgspec.json.decode(value))
            msgspec.msgpack.decode(value, type=msgspec.Raw)
        except (*UNREADABLE, UnicodeEncodeError) as fault:
            kind = "JSON" if isinstance(value, str) else "MessagePack"
            redrive = f"--set: the new payload of {key} is no {kind}: {fault}; nothing was moved"
            raise SettingsError(redrive) from fault
        return value

    def until(self) -> str:
        """Return the id of the last dead letter."""
        return self._store.run(scan_ops.last(self._keys.dlq)) or _NOTHING

    def letters(self) -> Iterator[DeadLetterInfo]:
        """Yield all dead letters, the oldest first."""
        after = "-"
        while page := self._store.run(peek(self._keys, _AT_ONCE, after)):
            after = f"({page[-1].dlq_id}"
            for each in page:
                at = int(each.dlq_id.partition("-")[0])
                words = (each.dlq_id, each.reason, each.name, each.error)
                yield DeadLetterInfo(str(self.address), *words, at, each.traceback or "")

    def begin(self, redrive: Redrive) -> Redrive:
        """Start a redrive, or return the one that has this id already."""
        return self._store.run(redrive_ops.begin(self._keys, redrive))

    def known(self) -> list[Redrive]:
        """Return the redrives that Redis still has a record of."""
        return self._store.follow(redrive_ops.known(self._keys))

    def settle(self, redrive: Redrive, state: str) -> None:
        """Set the state of a redrive."""
        self._store.run(redrive_ops.settle(self._keys, redrive.id, state))

    def move(self, redrive: Redrive, selections: Sequence[Selection]) -> MoveResult:
        """Move dead letters back to the stream; those that cannot be decoded stay."""
        moved = MoveResult(redrive.moved)
        refused = 0
        for first in range(0, len(selections), PAGE):
            some = selections[first : first + PAGE]
            found = self._store.run_all([redrive_ops.letter(self._keys, p.key) for p in some])
            jobs, reset = [], redrive.attempts == "reset"
            for selection, letter in zip(some, found, strict=True):
                job = letter and redrive_ops.job_of(letter, reset=reset, payload=selection.body)
                refused += letter is not None and job is None
                if job:
                    jobs.append(job)
            call = redrive_ops.move(self._keys, self._policy, redrive.id, now_ms(), jobs)
            moved = self._store.run(call)
            if moved.is_full:
                break
        return msgspec.structs.replace(moved, refused=refused)

    def undo(self, redrive: Redrive) -> UndoResult:
        """Move redriven jobs that no worker has read yet back to the dead letters."""
        plan = redrive_ops.undo(self._keys, self._policy, redrive.id, now_ms())
        return self._store.follow(plan)

    def outcomes(self, redrive: Redrive) -> Counter[str]:
        """Count canary jobs that are ``waiting``, ``running``, ``retrying``, ``died`` or ``done``.

        Without events, a job that is neither in the stream nor among the dead letters is done.
        """
        first = self._store.run(redrive_ops.first_moved(self._keys, redrive.id, redrive.canary))
        rows = self._store.run_all(
            [scan_ops.entry(self._keys.stream, each.entry.encode()) for each in first]
        )
        in_stream = {row[0].decode() for row in rows if row[1] is not None}
        held = self._store.follow(redrive_ops.in_hands(self._keys, sorted(in_stream)))
        self._read_events(redrive)
        dead = self._died_since(redrive.until)
        outcomes: Counter[str] = Counter()
        for each in first:
            if each.entry in in_stream:
                outcomes["running" if each.entry in held else "waiting"] += 1
            elif each.job_id in dead:
                outcomes["died"] += 1
            else:
                outcomes[self._last_state.get(each.job_id, "done")] += 1
        return outcomes

    def _read_events(self, redrive: Redrive) -> None:
        """Read the events since the last call."""
        low = self._read_up_to or str(redrive.begun_ms)
        while page := self._store.run(scan_ops.page(self._keys.events, low, "+")):
            self._read_up_to = low = f"({page[-1][0].decode()}"
            for id, fields in page:
                event = read_event(id, fields)
                if event.job_id and event.name in _ENDS:
                    self._last_state[event.job_id] = _ENDS[event.name]

    def _died_since(self, until: str) -> set[str]:
        died, after = set(), f"({until}"
        while page := self._store.run(peek(self._keys, _AT_ONCE, after)):
            after = f"({page[-1].dlq_id}"
            for letter in page:
                try:
                    died.add(decode_envelope(letter.payload).id)
                except RemoteProtocolError:
                    continue
        return died
