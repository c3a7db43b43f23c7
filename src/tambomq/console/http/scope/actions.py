"""The actions of a user with rights to some queues: each is checked for its queue.

A selection of dead letters is of one queue, and only its user may act on it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

import msgspec

from tambomq.access.directory import UserSession
from tambomq.access.model import Right
from tambomq.console.actions.model import (
    ActionResult,
    DeadLetterSummary,
    LetterSelection,
    LetterSelector,
    Operation,
)
from tambomq.console.http.parts import ActionControl
from tambomq.console.messages.model import Body, MessagePage
from tambomq.console.model import QueueRef, Series
from tambomq.errors import ActionRefused

MAX_SELECTIONS: Final = 1000
"""Selections whose users are known; older ones have to be made again."""

_NO_SERIES: Final = Series(times_ms=[], values={})


class _Access(Protocol):
    """The rights of one session."""

    session: UserSession

    def require(self, right: Right, ref: QueueRef) -> None:
        """Raise `AccessDenied` unless the user has *right* on *ref*."""

    def has(self, right: Right, queue: str) -> bool:
        """Return whether the user has *right* on *queue*."""

    def has_all(self, right: Right) -> bool:
        """Return whether the user has *right* on all queues."""


class Selections:
    """Who has selected which dead letters: the user and the queue, by the id of the selection."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def add(self, id: str, user: str, queue: str) -> None:
        """Remember a selection."""
        self._known[id] = user, queue
        if len(self._known) > MAX_SELECTIONS:
            self._known.popitem(last=False)

    def queue_of(self, id: str, user: str) -> QueueRef:
        """Return the queue of a selection of *user*. Raises `ActionRefused`."""
        owner, queue = self._known.get(id, ("", ""))
        if not queue or owner != user:
            raise ActionRefused("this selection is not known any more: select again")
        return QueueRef.parse(queue)


class ScopedActions:
    """What *actions* can do, as far as the user has the right to."""

    def __init__(self, actions: ActionControl, access: _Access, selections: Selections) -> None:
        self._actions, self._access, self._selections = actions, access, selections

    # ── queues and messages ──────────────────────────────────────────────────

    async def pause(self, ref: QueueRef) -> ActionResult:
        """Hand out no more messages."""
        self._access.require("manage", ref)
        return await self._actions.pause(ref)

    async def resume(self, ref: QueueRef) -> ActionResult:
        """Hand out messages again."""
        self._access.require("manage", ref)
        return await self._actions.resume(ref)

    async def purge(self, ref: QueueRef, expected: int | None = None) -> ActionResult:
        """Delete all messages, if they are as many as *expected*."""
        self._access.require("manage", ref)
        return await self._actions.purge(ref, expected)

    async def drain(self, ref: QueueRef, expected: int | None = None) -> ActionResult:
        """Delete the messages that wait, if they are as many as *expected*."""
        self._access.require("manage", ref)
        return await self._actions.drain(ref, expected)

    async def count_for(self, ref: QueueRef, verb: str) -> ActionResult:
        """Return what *verb* would do, and to how many messages."""
        self._access.require("manage", ref)
        return await self._actions.count_for(ref, verb)

    async def send(
        self,
        ref: QueueRef,
        body: str,
        encoding: str = "text",
        *,
        name: str = "",
        delay_s: float | None = None,
        job_id: str | None = None,
        attempts: int | None = None,
    ) -> ActionResult:
        """Send a message."""
        self._access.require("send", ref)
        return await self._actions.send(
            ref, body, encoding, name=name, delay_s=delay_s, job_id=job_id, attempts=attempts
        )

    async def run_now(self, ref: QueueRef, id: str) -> ActionResult:
        """Let a delayed message run now."""
        self._access.require("manage", ref)
        return await self._actions.run_now(ref, id)

    async def cancel(self, ref: QueueRef, id: str, reason: str = "") -> ActionResult:
        """Cancel a job."""
        self._access.require("manage", ref)
        return await self._actions.cancel(ref, id, reason)

    async def delete(self, ref: QueueRef, id: str) -> ActionResult:
        """Delete a message."""
        self._access.require("manage", ref)
        return await self._actions.delete(ref, id)

    async def edit_and_run(self, ref: QueueRef, id: str, body: str, encoding: str) -> ActionResult:
        """Give a message another body and let it run."""
        self._access.require("manage", ref)
        return await self._actions.edit_and_run(ref, id, body, encoding)

    async def run_schedule(self, ref: QueueRef, key: str) -> ActionResult:
        """Fire a recurring job now."""
        self._access.require("manage", ref)
        return await self._actions.run_schedule(ref, key)

    async def skip_schedule(self, ref: QueueRef, key: str) -> ActionResult:
        """Leave out the next fire of a recurring job."""
        self._access.require("manage", ref)
        return await self._actions.skip_schedule(ref, key)

    # ── dead letters ─────────────────────────────────────────────────────────

    async def summary(
        self, queue: str | None = None, since_ms: int | None = None, find: str = ""
    ) -> DeadLetterSummary:
        """Return what died of what."""
        if queue is not None:
            self._access.require("look", QueueRef.parse(queue))
        found = await self._actions.summary(queue, since_ms, find)
        if queue is not None or self._access.has_all("look"):
            return found
        by_queue = {name: n for name, n in found.by_queue.items() if self._access.has("look", name)}
        groups = [each for each in found.groups if each.queue in by_queue]
        by_reason: dict[str, int] = {}
        for each in groups:
            by_reason[each.reason] = by_reason.get(each.reason, 0) + each.count
        return msgspec.structs.replace(
            found,
            total=sum(by_queue.values()),
            by_queue=by_queue,
            by_reason=by_reason,
            groups=groups,
            per_minute=_NO_SERIES,
            looked_at=sum(by_queue.values()),
        )

    async def letters(
        self, selector: LetterSelector, cursor: str | None, limit: int
    ) -> MessagePage:
        """Return some dead letters."""
        self._require_queue(selector, "look")
        return await self._actions.letters(selector, cursor, limit)

    async def select(self, selector: LetterSelector) -> LetterSelection:
        """Fix and count the letters that *selector* means."""
        queue = self._require_queue(selector, "manage")
        found = await self._actions.select(selector)
        self._selections.add(found.id, self._access.session.user, queue)
        return found

    def replay(self, selection_id: str, *, per_s: float | None = None, ahead: int = 0) -> Operation:
        """Run the selected letters again; stop unless the first *ahead* of them are done."""
        self._require_selection(selection_id)
        return self._actions.replay(selection_id, per_s=per_s, ahead=ahead)

    async def selected_body(self, selection_id: str) -> Body:
        """Return the body of the one selected letter."""
        self._require_selection(selection_id)
        return await self._actions.selected_body(selection_id)

    async def edit_and_replay(self, selection_id: str, body: str, encoding: str) -> ActionResult:
        """Run the selected letter again with another body."""
        self._require_selection(selection_id)
        return await self._actions.edit_and_replay(selection_id, body, encoding)

    def discard(self, selection_id: str, typed_count: int) -> Operation:
        """Delete the selected letters."""
        self._require_selection(selection_id)
        return self._actions.discard(selection_id, typed_count)

    async def undo(self, id: str) -> Operation:
        """Take back what an operation has done."""
        self._require_operation(id)
        return await self._actions.undo(id)

    async def stop_operation(self, id: str) -> Operation:
        """End an operation that runs."""
        self._require_operation(id)
        return await self._actions.stop_operation(id)

    def operations(self) -> list[Operation]:
        """Return the latest operations."""
        if self._access.has_all("look"):
            return self._actions.operations()
        return [each for each in self._actions.operations() if self._access.has("look", each.queue)]

    def _require_queue(self, selector: LetterSelector, right: Right) -> str:
        """Return the one queue of *selector*, checked. Raises `ActionRefused`, `AccessDenied`."""
        if selector.queue is None:
            if self._access.has_all(right):
                return ""
            raise ActionRefused("choose a queue: you may not see the dead letters of all")
        self._access.require(right, QueueRef.parse(selector.queue))
        return selector.queue

    def _require_selection(self, id: str) -> None:
        if not self._access.has_all("manage"):
            queue = self._selections.queue_of(id, self._access.session.user)
            self._access.require("manage", queue)

    def _require_operation(self, id: str) -> None:
        if self._access.has_all("manage"):
            return
        known = {each.id: each.queue for each in self._actions.operations()}
        if not self._access.has("manage", known.get(id, "")):
            raise ActionRefused("this operation is not known any more")
