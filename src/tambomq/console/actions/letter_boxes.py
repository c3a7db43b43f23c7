"""The dead letters of one queue, in the same terms for RSMQ and ChasquiMQ.

Letters are read without their bodies, the newest first. A replay is a redrive of `bulk.redrives`:
it is recorded by the script that moves, so it can be undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

import msgspec

from tambomq.bulk.redrives import Redrive, UndoResult
from tambomq.chasqui.bulk import discard as chasqui_discard
from tambomq.chasqui.bulk import redrive as chasqui_redrive
from tambomq.chasqui.bulk import scan as chasqui_scan
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.ops import events as event_ops
from tambomq.chasqui.ops.add import Policy
from tambomq.clock import now_ms
from tambomq.console.actions.messages import IN_CONSOLE
from tambomq.console.model import QueueRef
from tambomq.errors import QueueFull
from tambomq.ids import ulid_ms
from tambomq.rsmq.bulk import discard as rsmq_discard
from tambomq.rsmq.bulk import redrive as rsmq_redrive
from tambomq.rsmq.bulk import scan as rsmq_scan
from tambomq.rsmq.keys import DEAD_SUFFIX
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.rsmq.model import sent_ms
from tambomq.rsmq.ops.replies import to_count
from tambomq.store.aio import AsyncStore

_ENDS: Final = {"completed": "done", "dlq": "failed", "retry-scheduled": "failed"}
_EVENTS_PAGE: Final = 1000
_MAX_EVENT_PAGES: Final = 20
PAGE: Final = 250
"""Letters that are read at a time."""


class Letter(msgspec.Struct, frozen=True):
    """A dead letter without its body."""

    queue: str
    id: str
    """Identifies it among the dead letters of its queue."""
    message_id: str
    name: str
    reason: str
    error: str
    died_ms: int
    size: int | None = None
    runs: int | None = None
    added_ms: int | None = None


class LetterBox(Protocol):
    """The dead letters of a queue."""

    @property
    def ref(self) -> QueueRef:
        """The queue they died in."""

    async def count(self) -> int:
        """Return how many there are."""

    def pages(self, until_ms: int | None = None, count: int = PAGE) -> AsyncIterator[list[Letter]]:
        """Yield those that died until *until_ms*, the newest first, *count* at a time."""

    async def begin(self, id: str, selected: int) -> None:
        """Record the beginning of a replay."""

    async def move(self, id: str, letters: Sequence[str]) -> int:
        """Replay *letters* with their runs reset; return how many of this replay so far.

        Raises `QueueError` if it was undone, or the queue is full.
        """

    async def settle(self, id: str, state: str) -> None:
        """Record the end of a replay."""

    async def outcomes(self, id: str, count: int) -> Counter[str]:
        """Count the first *count* replayed ones that are ``open``, ``failed`` or ``done``."""

    async def undo(self, id: str) -> UndoResult:
        """Put back what no consumer has received."""

    async def discard(self, id: str, letters: Sequence[str], keep_s: int) -> int:
        """Delete *letters*, keeping them aside under *id*; return how many were there."""

    async def restore(self, id: str) -> int:
        """Put back what was discarded under *id*; return how many."""


def letter_box(store: AsyncStore, rsmq: RsmqKeys, ref: QueueRef) -> LetterBox | None:
    """Return the dead letters of *ref*; `None` if its protocol has none."""
    if ref.protocol == "chasqui":
        return ChasquiLetterBox(store, ref)
    return RsmqLetterBox(store, rsmq, ref) if ref.protocol == "rsmq" else None


class ChasquiLetterBox:
    """The dead-letter stream of a ChasquiMQ queue."""

    def __init__(self, store: AsyncStore, ref: QueueRef) -> None:
        self.ref, self._store, self._keys = ref, store, ChasquiKeys(ref.name)

    async def count(self) -> int:
        """Return how many there are."""
        return await self._store.run(chasqui_scan.length(self._keys.dlq))

    async def pages(
        self, until_ms: int | None = None, count: int = PAGE
    ) -> AsyncIterator[list[Letter]]:
        """Yield those that died until *until_ms*, the newest first, *count* at a time."""
        queue, before = str(self.ref), "+" if until_ms is None else f"({until_ms + 1}-0"
        while heads := await self._store.run(chasqui_discard.letters(self._keys, before, count)):
            yield [
                Letter(
                    queue, each.id, each.job_id or each.id, each.name, each.reason, each.error,
                    each.died_ms, each.size, each.runs, ulid_ms(each.job_id),
                )
                for each in heads
            ]  # fmt: skip
            before = f"({heads[-1].id}"

    async def begin(self, id: str, selected: int) -> None:
        """Record the beginning of a replay."""
        until = await self._store.run(chasqui_scan.last(self._keys.dlq)) or "0-0"
        redrive = Redrive(id, IN_CONSOLE, until=until, selected=selected, begun_ms=now_ms())
        await self._store.run(chasqui_redrive.begin(self._keys, redrive))

    async def move(self, id: str, letters: Sequence[str]) -> int:
        """Replay *letters*; those that are no jobs stay."""
        calls = [chasqui_redrive.letter(self._keys, each) for each in letters]
        found = await self._store.run_all(calls)
        jobs = [job for each in found if each and (job := chasqui_redrive.job_of(each, reset=True))]
        call = chasqui_redrive.move(self._keys, Policy(), id, now_ms(), jobs)
        result = await self._store.run(call)
        if result.is_full:
            raise QueueFull(self.ref.name, Policy().max_stream_len)
        return result.total

    async def settle(self, id: str, state: str) -> None:
        """Record the end of a replay."""
        await self._store.run(chasqui_redrive.settle(self._keys, id, state))

    async def outcomes(self, id: str, count: int) -> Counter[str]:
        """Count the first replayed jobs by what the events say of them; unknown is ``open``."""
        moved = await self._store.run(chasqui_redrive.first_moved(self._keys, id, count))
        if not moved:
            return Counter()
        ends = await self._ends(min(each.entry.partition("-")[0] for each in moved))
        calls = [chasqui_scan.entry(self._keys.stream, each.entry.encode()) for each in moved]
        rows = await self._store.run_all(calls)
        outcomes: Counter[str] = Counter()
        for each, row in zip(moved, rows, strict=True):
            # Without events, a job that has left the stream and did not fail is done.
            is_there = row[1] is not None
            outcomes["open" if is_there else ends.get(each.job_id, "done")] += 1
        return outcomes

    async def undo(self, id: str) -> UndoResult:
        """Put back what no worker has read."""
        plan = chasqui_redrive.undo(self._keys, Policy(), id, now_ms())
        return await self._store.follow(plan)

    async def discard(self, id: str, letters: Sequence[str], keep_s: int) -> int:
        """Delete *letters*, keeping them aside under *id*; return how many were there."""
        plan = chasqui_discard.discard(self._keys, id, letters, keep_s)
        return await self._store.follow(plan)

    async def restore(self, id: str) -> int:
        """Put back what was discarded under *id*; return how many."""
        return await self._store.follow(chasqui_discard.restore(self._keys, id))

    async def _ends(self, after: str) -> dict[str, str]:
        ends: dict[str, str] = {}
        for _ in range(_MAX_EVENT_PAGES):
            page = await self._store.run(event_ops.read_on(self._keys, after, _EVENTS_PAGE))
            for event in page:
                if event.job_id and event.name in _ENDS:
                    ends[event.job_id] = _ENDS[event.name]
            if len(page) < _EVENTS_PAGE:
                break
            after = page[-1].event_id
        return ends


class RsmqLetterBox:
    """The dead-letter queue of an RSMQ queue."""

    def __init__(self, store: AsyncStore, keys: RsmqKeys, ref: QueueRef) -> None:
        self.ref, self._store, self._keys = ref, store, keys
        self._queue, self._dead = ref.name, ref.name + DEAD_SUFFIX

    async def count(self) -> int:
        """Return how many there are."""
        return await self._store.run(rsmq_scan.count(self._keys, self._dead, "-inf", "+inf"))

    async def pages(
        self, until_ms: int | None = None, count: int = PAGE
    ) -> AsyncIterator[list[Letter]]:
        """Yield those that died until *until_ms*, each once also if some leave meanwhile."""
        queue, first, seen = str(self.ref), 0, set[str]()
        if until_ms is not None:
            newer = rsmq_scan.count(self._keys, self._dead, f"({until_ms}", "+inf")
            first = await self._store.run(newer)
        while heads := await self._store.follow(
            rsmq_discard.letters(self._keys, self._queue, first, count)
        ):
            fresh = [each for each in heads if each.id not in seen]
            seen.update(each.id for each in fresh)
            first += len(heads)
            yield [
                Letter(
                    queue, each.id, each.id, "", "gave up after receives", each.error, each.died_ms,
                    runs=each.rc or None, added_ms=sent_ms(each.id),
                )
                for each in fresh
            ]  # fmt: skip

    async def begin(self, id: str, selected: int) -> None:
        """Record the beginning of a replay."""
        await self._store.run(
            rsmq_redrive.begin(self._keys, self._queue, self._redrive(id, selected))
        )

    async def move(self, id: str, letters: Sequence[str]) -> int:
        """Replay *letters*; those that the queue refuses, or a consumer holds, stay."""
        moving = [rsmq_redrive.RedrivenMessage(each) for each in letters]
        call = rsmq_redrive.move(self._keys, self._queue, self._redrive(id), moving)
        return (await self._store.run(call)).total

    async def settle(self, id: str, state: str) -> None:
        """Record the end of a replay."""
        await self._store.run(rsmq_redrive.settle(self._keys, self._queue, id, state))

    async def outcomes(self, id: str, count: int) -> Counter[str]:
        """Count the first replayed messages; one that is in neither queue any more is done."""
        moved = await self._store.run(rsmq_redrive.first_moved(self._keys, self._queue, id, count))
        ids = [each.encode() for each in moved]
        if not ids:
            return Counter()
        here, dead = await self._store.run_all(
            [rsmq_scan.present(self._keys, queue, ids) for queue in (self._queue, self._dead)]
        )
        found = await self._store.run(rsmq_scan.contents(self._keys, self._queue, ids))
        outcomes: Counter[str] = Counter()
        for is_here, is_dead, rc in zip(here, dead, found[1::3], strict=True):
            # Received more than once: its handler has failed, or is too slow.
            failed = is_dead or (is_here and to_count(rc) > 1)
            outcomes["failed" if failed else "open" if is_here else "done"] += 1
        return outcomes

    async def undo(self, id: str) -> UndoResult:
        """Put back what no consumer has received."""
        plan = rsmq_redrive.undo(self._keys, self._queue, self._redrive(id))
        return await self._store.follow(plan)

    async def discard(self, id: str, letters: Sequence[str], keep_s: int) -> int:
        """Delete *letters*, keeping them aside under *id*; return how many were there."""
        plan = rsmq_discard.discard(self._keys, self._queue, id, letters, keep_s)
        return await self._store.follow(plan)

    async def restore(self, id: str) -> int:
        """Put back what was discarded under *id*; return how many."""
        return await self._store.follow(rsmq_discard.restore(self._keys, self._queue, id))

    def _redrive(self, id: str, selected: int = 0) -> Redrive:
        until = str(now_ms())
        return Redrive(
            id, IN_CONSOLE, until=until, dead=self._dead, selected=selected, begun_ms=now_ms()
        )
