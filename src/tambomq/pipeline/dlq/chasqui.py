"""Where the dead letters of a ChasquiMQ queue are, and the way back from there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from tambomq.chasqui import redrive_ops, scan_ops
from tambomq.chasqui.dlq_ops import PAGE, peek
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import Policy
from tambomq.chasqui.packing import UNREADABLE, encode_payload
from tambomq.chasqui.wire import decode_envelope
from tambomq.chasqui.wire_records import read_event
from tambomq.clock import now_ms
from tambomq.errors import RemoteProtocolError, SettingsError
from tambomq.pipeline.address import Address
from tambomq.pipeline.dead import Letter
from tambomq.pipeline.picks import Pick
from tambomq.store.redrives import Moved, Redrive, Undone
from tambomq.store.sync import Store

_ENTRY_ID: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_NOTHING: Final = "0-0"
_AT_ONCE: Final = 1000
_ENDS: Final = {"completed": "done", "dlq": "died", "retry-scheduled": "retrying"}


class ChasquiGrave:
    """The dead letters of a queue."""

    key = "dlq_id"
    order = (
        "cast(substring_index(dlq_id, '-', 1) AS DECIMAL(20))",
        "cast(substring_index(dlq_id, '-', -1) AS DECIMAL(20))",
    )

    def __init__(self, store: Store, url: str, queue: str, policy: Policy) -> None:
        self.address = Address("chasqui", queue)
        self._store, self._url, self._keys, self._policy = store, url, Keys(queue), policy
        self._told: dict[str, str] = {}
        self._heard = ""

    def frame(self, spark: Any) -> Any:
        """Return the table ``dlq``; its column ``value`` is the payload as JSON."""
        reader = spark.read.format("chasqui").option("url", self._url).option("table", "dlq")
        # A JSON list, since a name may have commas in it.
        queue = msgspec.json.encode([self._keys.queue]).decode()
        return reader.option("queue", queue).option("payload", "msgpack").load()

    def bound(self, until: str) -> str:
        """Return, as SQL, which letters were there at *until*."""
        if not (match := _ENTRY_ID.fullmatch(until)):
            raise SettingsError(f"what Redis has of the redrive is damaged: it ends at {until!r}")
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
            told = f"--set: the new payload of {key} is no {kind}: {fault}; nothing was moved"
            raise SettingsError(told) from fault
        return value

    def until(self) -> str:
        """Return the last letter there is."""
        return self._store.run(scan_ops.last(self._keys.dlq)) or _NOTHING

    def letters(self) -> Iterator[Letter]:
        """Yield all dead letters, the oldest first."""
        after = "-"
        while page := self._store.run(peek(self._keys, _AT_ONCE, after)):
            after = f"({page[-1].dlq_id}"
            for each in page:
                at = int(each.dlq_id.partition("-")[0])
                words = (each.dlq_id, each.reason, each.name, each.error)
                yield Letter(str(self.address), *words, at, each.traceback or "")

    def begin(self, told: Redrive) -> Redrive:
        """Begin a redrive, or go on with the one that has this id."""
        return self._store.run(redrive_ops.begin(self._keys, told))

    def known(self) -> list[Redrive]:
        """Return the redrives that are remembered."""
        return self._store.follow(redrive_ops.known(self._keys))

    def settle(self, told: Redrive, state: str) -> None:
        """Say what has become of a redrive."""
        self._store.run(redrive_ops.settle(self._keys, told.id, state))

    def move(self, told: Redrive, picks: Sequence[Pick]) -> Moved:
        """Let letters run again; those that are no jobs stay."""
        moved = Moved(told.moved)
        refused = 0
        for first in range(0, len(picks), PAGE):
            some = picks[first : first + PAGE]
            found = self._store.run_all([redrive_ops.letter(self._keys, p.key) for p in some])
            jobs, reset = [], told.attempts == "reset"
            for pick, letter in zip(some, found, strict=True):
                job = letter and redrive_ops.job_of(letter, reset=reset, payload=pick.body)
                refused += letter is not None and job is None
                if job:
                    jobs.append(job)
            call = redrive_ops.move(self._keys, self._policy, told.id, now_ms(), jobs)
            moved = self._store.run(call)
            if moved.is_full:
                break
        return msgspec.structs.replace(moved, refused=refused)

    def undo(self, told: Redrive) -> Undone:
        """Put back what no worker has taken."""
        plan = redrive_ops.undo(self._keys, self._policy, told.id, now_ms())
        return self._store.follow(plan)

    def fates(self, told: Redrive) -> Counter[str]:
        """Return what has become of those that went ahead.

        They are ``waiting``, ``running``, ``retrying``, ``died`` or ``done``. Where no events are
        written, who is gone and not dead is done.
        """
        first = self._store.run(redrive_ops.first_moved(self._keys, told.id, told.canary))
        rows = self._store.run_all(
            [scan_ops.entry(self._keys.stream, each.entry.encode()) for each in first]
        )
        here = {row[0].decode() for row in rows if row[1] is not None}
        held = self._store.follow(redrive_ops.in_hands(self._keys, sorted(here)))
        self._listen(told)
        dead = self._died_since(told.until)
        fates: Counter[str] = Counter()
        for each in first:
            if each.entry in here:
                fates["running" if each.entry in held else "waiting"] += 1
            elif each.job_id in dead:
                fates["died"] += 1
            else:
                fates[self._told.get(each.job_id, "done")] += 1
        return fates

    def _listen(self, told: Redrive) -> None:
        """Read the events that are new since the last time."""
        low = self._heard or str(told.begun_ms)
        while page := self._store.run(scan_ops.page(self._keys.events, low, "+")):
            self._heard = low = f"({page[-1][0].decode()}"
            for id, fields in page:
                event = read_event(id, fields)
                if event.job_id and event.name in _ENDS:
                    self._told[event.job_id] = _ENDS[event.name]

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
