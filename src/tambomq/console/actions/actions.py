"""All actions of the console, in one place for those who serve it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tambomq.console.actions.dead_letters import DeadLetters
from tambomq.console.actions.letter_bodies import read_letter_body, replay_with_body
from tambomq.console.actions.messages import MessageActions
from tambomq.console.actions.model import (
    ActionResult,
    DeadLetterSummary,
    LetterSelection,
    LetterSelector,
    Operation,
)
from tambomq.console.actions.operations import OnChange, Operations
from tambomq.console.actions.queues import QueueActions
from tambomq.console.actions.schedules import ScheduleActions
from tambomq.console.messages.model import Body, MessagePage
from tambomq.console.model import QueueRef
from tambomq.errors import ActionRefused
from tambomq.rsmq.keys import NAMESPACE, Keys
from tambomq.store.aio import AsyncStore


class Actions(QueueActions, MessageActions, ScheduleActions):
    """Actions on the queues of *store*.

    *refs* returns the queues whose dead letters are shown. KqueueMsgQ's broker is at *kqueue*.
    *on_operation* is called with each new state of a replay or deletion.
    """

    def __init__(
        self,
        store: AsyncStore,
        refs: Callable[[], Awaitable[Sequence[QueueRef]]],
        *,
        rsmq_ns: str = NAMESPACE,
        kqueue: tuple[str, int] | None = None,
        on_operation: OnChange = lambda _: None,
    ) -> None:
        keys = Keys(rsmq_ns)
        MessageActions.__init__(self, store, keys, kqueue)
        self._dead = DeadLetters(store, keys, refs)
        self._operations = Operations(self._dead, on_operation)

    async def summary(
        self, queue: str | None = None, since_ms: int | None = None, find: str = ""
    ) -> DeadLetterSummary:
        """Return what died of what, of all queues or one."""
        return await self._dead.summary(queue, since_ms, find)

    async def letters(
        self, selector: LetterSelector, cursor: str | None = None, limit: int = 50
    ) -> MessagePage:
        """Return a page of the letters that *selector* means, the newest first."""
        return await self._dead.page(selector, cursor, limit)

    async def select(self, selector: LetterSelector) -> LetterSelection:
        """Count and fix the letters that *selector* means now."""
        return await self._dead.select(selector)

    def replay(self, selection_id: str, *, per_s: float | None = None, ahead: int = 0) -> Operation:
        """Replay a selection in the background."""
        selection = self._dead.selection(selection_id)
        return self._operations.replay(selection, per_s=per_s, ahead=ahead)

    async def selected_body(self, selection_id: str) -> Body:
        """Return the body of the one selected letter."""
        return await read_letter_body(self._store, self._rsmq, *self._selected_one(selection_id))

    async def edit_and_replay(self, selection_id: str, body: str, encoding: str) -> ActionResult:
        """Give the one selected letter another body, and replay it."""
        ref, letter = self._selected_one(selection_id)
        id = await replay_with_body(self._store, self._rsmq, ref, letter, body, encoding)
        return ActionResult(text=f"{id} of {ref} has a new body and is due now.", id=id)

    def _selected_one(self, selection_id: str) -> tuple[QueueRef, str]:
        """Return queue and id of the one selected letter. Raises `ActionRefused`."""
        selection = self._dead.selection(selection_id)
        if selection.shown.count != 1:
            raise ActionRefused(
                f"one letter is edited at a time, and {selection.shown.count:,} are selected"
            )
        [(queue, [letter])] = selection.letters.items()
        return QueueRef.parse(queue), letter

    def discard(self, selection_id: str, typed_count: int) -> Operation:
        """Delete a selection in the background, if *typed_count* is its count."""
        return self._operations.discard(self._dead.selection(selection_id), typed_count)

    def operations(self) -> list[Operation]:
        """Return the replays and deletions of this process, the newest first."""
        return self._operations.all()

    async def stop_operation(self, id: str) -> Operation:
        """Stop a replay or deletion after its present step."""
        return await self._operations.stop(id)

    async def undo(self, id: str) -> Operation:
        """Put back what a replay or deletion has moved, as far as it can be."""
        return await self._operations.undo(id)

    async def close(self) -> None:
        """Stop what goes on in the background."""
        await self._operations.close()
