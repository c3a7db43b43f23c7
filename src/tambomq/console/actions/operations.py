"""Replays and deletions of selected dead letters, in the background: stoppable and undoable.

Each step is one script that moves at most 250 letters, so whatever happens to this process, a
letter is either queues it was or queues it should go.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from tambomq.bulk.rate_limiter import RateLimiter
from tambomq.bulk.redrives import CHUNK, DONE, STOPPED
from tambomq.clock import Deadline, now_ms
from tambomq.console.actions.dead_letters import DeadLetters, FixedSelection
from tambomq.console.actions.letter_boxes import LetterBox
from tambomq.console.actions.model import Operation
from tambomq.console.words import count_text
from tambomq.errors import ActionRefused, TamboError
from tambomq.ids import letters as random_letters

UNDO_S: Final = 600
"""How long a deletion can be undone, and a replay too."""
AHEAD_WITHIN_S: Final = 60.0
"""How long letters that are sent ahead may take."""
MAX_KEPT: Final = 100
"""Operations that are kept; the oldest finished one is forgotten."""
_POLL_S: Final = 0.5
_ID_LETTERS: Final = 10
_BEGUN: Final = {"replay": "Replaying", "delete": "Deleting"}

_log = logging.getLogger(__name__)

OnChange = Callable[[Operation], None]


class Operations:
    """The operations of this process. *on_change* is called with each new state of one."""

    def __init__(self, dead: DeadLetters, on_change: OnChange = lambda _: None) -> None:
        self._dead, self.on_change = dead, on_change
        self._known: OrderedDict[str, Operation] = OrderedDict()
        self._boxes: dict[str, list[LetterBox]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping: set[str] = set()

    def all(self) -> list[Operation]:
        """Return the operations, the newest first."""
        return list(reversed(self._known.values()))

    def get(self, id: str) -> Operation:
        """Return an operation. Raises `ActionRefused` if it is not known."""
        if (found := self._known.get(id)) is None:
            raise ActionRefused("this operation is not known any more")
        return found

    def replay(
        self, selection: FixedSelection, *, per_s: float | None = None, ahead: int = 0
    ) -> Operation:
        """Replay a selection at *per_s*; stop unless the first *ahead* letters are done.

        Letters sent ahead are of one queue: a selection of several has none.
        """
        if per_s is not None and per_s <= 0:
            raise ActionRefused("the rate must be more than 0 per second")
        if ahead and len(selection.letters) > 1:
            raise ActionRefused("letters are sent ahead within one queue: select those of one")
        operation = self._begin("replay", selection)
        self._start(operation.id, self._replay(operation.id, selection, per_s, ahead))
        return operation

    def discard(self, selection: FixedSelection, typed_count: int) -> Operation:
        """Delete a selection, if *typed_count* is its count; it is kept aside for a while."""
        if typed_count != selection.shown.count:
            raise ActionRefused(
                f"{selection.shown.count:,} letters are selected, not {typed_count:,}: "
                "type the number of letters to delete them"
            )
        operation = self._begin("delete", selection)
        self._start(operation.id, self._discard(operation.id, selection))
        return operation

    async def stop(self, id: str) -> Operation:
        """Stop an operation after its present step; wait for that."""
        self.get(id)
        self._stopping.add(id)
        if task := self._tasks.get(id):
            await asyncio.wait((task,))
        return self.get(id)

    async def undo(self, id: str) -> Operation:
        """Stop an operation, and put back what can be put back. Raises `ActionRefused`."""
        operation = await self.stop(id)
        if operation.state == "undone":
            raise ActionRefused("it was undone already")
        if (operation.undo_until_ms or 0) < now_ms():
            raise ActionRefused(f"it can be undone for {UNDO_S // 60} minutes, and they are over")
        back = taken = 0
        for box in self._boxes.get(id, ()):
            if operation.verb == "delete":
                back += await box.restore(id)
            else:
                result = await box.undo(id)
                back, taken = back + result.back, taken + result.running + result.consumed
        text = f"Put back {count_text(back, 'letter')} of {operation.queue}."
        if taken:
            were = count_text(taken, "was", "were")
            text += f" {were} taken by consumers before, and {'stays' if taken == 1 else 'stay'}."
        return self._set(id, state="undone", text=text, undo_until_ms=None)

    async def close(self) -> None:
        """Stop all operations after their present step."""
        for id in list(self._tasks):
            await self.stop(id)

    def _begin(self, verb: str, selection: FixedSelection) -> Operation:
        if not selection.shown.count:
            raise ActionRefused("nothing is selected")
        queues = " and ".join(selection.letters) if len(selection.letters) < 3 else "many queues"  # noqa: PLR2004  (few enough to name)
        id, count = random_letters(_ID_LETTERS), selection.shown.count
        operation = Operation(
            id=id, verb=verb, queue=queues, wanted=count, done=0, failed=0, state="running",
            text=f"{_BEGUN[verb]} {count_text(count, 'letter')} of {queues}.",
        )  # fmt: skip
        self._boxes[id] = [self._dead.box(queue) for queue in selection.letters]
        self._known[id] = operation
        self._forget()
        self.on_change(operation)
        return operation

    def _start(self, id: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(self._guarded(id, work))
        self._tasks[id] = task
        task.add_done_callback(lambda _: self._tasks.pop(id, None))

    async def _guarded(self, id: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except TamboError as error:
            done = self.get(id).done
            self._set(id, state="stopped", text=f"Stopped after {done:,}: {error}")
        except Exception:  # noqa: BLE001  (nobody awaits it: show it queues the operation is shown)
            _log.exception("operation %s failed", id)
            self._set(id, state="stopped", text="Stopped by a fault of the console: see its log.")

    async def _replay(
        self, id: str, selection: FixedSelection, per_s: float | None, ahead: int
    ) -> None:
        moved_before, limiter, began = 0, RateLimiter(per_s, CHUNK), time.monotonic()
        sent = 0
        for box in self._boxes[id]:
            ids = selection.letters[str(box.ref)]
            await box.begin(id, len(ids))
            moved, first = 0, 0
            while first < len(ids) and id not in self._stopping:
                step = ahead if ahead and not first else limiter.step
                some = ids[first : first + step]
                moved = await box.move(id, some)
                first, sent = first + len(some), sent + len(some)
                self._set(id, done=moved_before + moved, failed=sent - moved_before - moved)
                if step == ahead and (why := await self._why_stop(box, id, ahead)):
                    await box.settle(id, STOPPED)
                    self._finish(id, "stopped", f"Stopped after {moved:,} of {len(ids):,}: {why}.")
                    return
                if first < len(ids):
                    await asyncio.sleep(limiter.wait_s(sent, time.monotonic() - began))
            moved_before += moved
            await box.settle(id, STOPPED if id in self._stopping else DONE)
        self._finish_all(id, "Replayed")

    async def _discard(self, id: str, selection: FixedSelection) -> None:
        done = sent = 0
        for box in self._boxes[id]:
            ids = selection.letters[str(box.ref)]
            for first in range(0, len(ids), CHUNK):
                if id in self._stopping:
                    break
                some = ids[first : first + CHUNK]
                done += await box.discard(id, some, UNDO_S)
                sent += len(some)
                self._set(id, done=done, failed=sent - done)
        self._finish_all(id, "Deleted")

    async def _why_stop(self, box: LetterBox, id: str, ahead: int) -> str:
        """Return why the rest must not follow those sent ahead; '' if it may."""
        deadline = Deadline(AHEAD_WITHIN_S)
        while id not in self._stopping:
            outcomes = await box.outcomes(id, ahead)
            if outcomes["failed"]:
                return f"{outcomes['failed']:,} of {outcomes.total():,} sent ahead failed again"
            if not outcomes["open"]:
                return ""
            if deadline.passed:
                text = f"{outcomes['open']:,} of {outcomes.total():,} sent ahead were not done"
                return f"{text} within {AHEAD_WITHIN_S:g} s: is a worker running?"
            await asyncio.sleep(_POLL_S)
        return "it was stopped"

    def _finish_all(self, id: str, verb: str) -> None:
        operation = self.get(id)
        stopped = id in self._stopping and operation.done + operation.failed < operation.wanted
        text = f"{verb} {count_text(operation.done, 'letter')} of {operation.queue}."
        if operation.failed:
            text += f" {operation.failed:,} were gone, are held, or do not fit."
        if stopped:
            text = f"Stopped. {text}"
        self._finish(id, "stopped" if stopped else "done", text)

    def _finish(self, id: str, state: str, text: str) -> None:
        until = now_ms() + UNDO_S * 1000
        self._set(id, state=state, text=text, undo_until_ms=until if self.get(id).done else None)

    def _set(self, id: str, **changes: object) -> Operation:
        operation = self._known[id] = msgspec.structs.replace(self._known[id], **changes)
        self.on_change(operation)
        return operation

    def _forget(self) -> None:
        for id, operation in list(self._known.items()):
            if len(self._known) <= MAX_KEPT:
                return
            if operation.state != "running":
                del self._known[id], self._boxes[id]
                self._stopping.discard(id)
