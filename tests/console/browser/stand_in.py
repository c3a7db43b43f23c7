"""A console over made-up data: the real web application, with readers and actions that only tell.

What was asked of it is in `StandIn.calls`; what it shows is set by its fields.
"""

# ruff: noqa: ARG002  (a stand-in takes what the real one takes)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tambomq.console.actions.model import (
    ActionResult,
    AuditEntry,
    DeadLetterSummary,
    LetterSelection,
    LetterSelector,
    Operation,
)
from tambomq.console.messages.body import decode_body
from tambomq.console.messages.model import Body, MessageDetail, MessagePage, MessageState
from tambomq.console.model import (
    LeaderRow,
    Overview,
    PipelineStatus,
    QueueDetail,
    QueueRef,
    QueueRow,
    ScheduleRow,
    WorkerRow,
)
from tambomq.errors import QueueNotFound
from tests.console.browser import canned, canned_messages

REFRESH_S = 0.5


@dataclass
class StandIn:
    """All parts of a console: readers, source, messages, actions and audit log."""

    rows: list[QueueRow] = field(default_factory=canned.queues)
    lost: bool = False
    watched_for_s: int = 3600
    body: str = canned_messages.BODY
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    ticks: int = 0
    selected: int = 0

    def __post_init__(self) -> None:
        self._operations: list[Operation] = []

    def reset(self) -> None:
        """Show the shop again, and forget all calls."""
        self.rows, self.lost, self.body = canned.queues(), False, canned_messages.BODY
        self.watched_for_s = 3600
        self.calls, self._operations = [], []

    # the overview

    async def latest(self) -> Overview:
        self.ticks += 1
        shown = canned.overview(self.rows, lost=self.lost, tick=self.ticks)
        since = shown.at_ms - self.watched_for_s * 1000
        return msgspec.structs.replace(shown, watched_since_ms=since)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[AsyncIterator[Overview]]:
        yield self._updates()

    async def _updates(self) -> AsyncIterator[Overview]:
        while True:
            yield await self.latest()
            await asyncio.sleep(REFRESH_S)

    # readers

    async def queue(self, ref: QueueRef) -> QueueDetail:
        for row in self.rows:
            if row.queue == str(ref):
                return canned.queue_detail(row)
        raise QueueNotFound(str(ref))

    async def workers(self, queue: str | None = None) -> list[WorkerRow]:
        return canned.workers()

    async def leaders(self) -> list[LeaderRow]:
        queue = "chasqui:payments"
        return [LeaderRow(queue=queue, promoter="pay-2.prod", scheduler="pay-2.prod")]

    async def schedules(self) -> list[ScheduleRow]:
        return canned.schedules()

    async def refs(self) -> list[QueueRef]:
        return [QueueRef(row.protocol, row.name) for row in self.rows]

    async def pipeline(self) -> PipelineStatus:
        return canned.pipeline()

    # messages

    async def list_messages(
        self,
        ref: QueueRef,
        state: MessageState,
        *,
        cursor: str | None = None,
        limit: int = 50,
        find: str = "",
        name: str = "",
    ) -> MessagePage:
        self.calls.append(("list", str(ref), state, cursor, find))
        return canned_messages.message_page(str(ref), state, find=find)

    async def read_message(self, ref: QueueRef, id: str) -> MessageDetail:
        return canned_messages.message_detail(str(ref), id, body=self.body)

    # actions: each is kept, and answered with a sentence

    def _did(self, *call: Any, count: int | None = None, id: str | None = None) -> ActionResult:
        self.calls.append(call)
        return ActionResult(text=f"Did {call[0]} to {call[1]}.", count=count, id=id)

    async def pause(self, ref: QueueRef) -> ActionResult:
        return self._did("pause", str(ref))

    async def resume(self, ref: QueueRef) -> ActionResult:
        return self._did("resume", str(ref))

    async def purge(self, ref: QueueRef, expected: int | None = None) -> ActionResult:
        return self._did("purge", str(ref), expected, count=17522)

    async def drain(self, ref: QueueRef, expected: int | None = None) -> ActionResult:
        return self._did("drain", str(ref), expected, count=16118)

    async def count_for(self, ref: QueueRef, verb: str) -> ActionResult:
        count = {"purge": 17522, "drain": 16118}.get(verb)
        return ActionResult(text=f"{count:,} jobs would be removed.", count=count)

    async def send(
        self, ref: QueueRef, body: str, encoding: str = "text", **options: Any
    ) -> ActionResult:
        return self._did("send", str(ref), body, encoding, options, id="01SENT")

    async def run_now(self, ref: QueueRef, id: str) -> ActionResult:
        return self._did("run_now", str(ref), id)

    async def cancel(self, ref: QueueRef, id: str, reason: str = "") -> ActionResult:
        return self._did("cancel", str(ref), id, reason)

    async def delete(self, ref: QueueRef, id: str) -> ActionResult:
        return self._did("delete", str(ref), id)

    async def edit_and_run(self, ref: QueueRef, id: str, body: str, encoding: str) -> ActionResult:
        return self._did("edit", str(ref), id, body, encoding)

    async def run_schedule(self, ref: QueueRef, key: str) -> ActionResult:
        return self._did("run_schedule", str(ref), key)

    async def skip_schedule(self, ref: QueueRef, key: str) -> ActionResult:
        return self._did("skip_schedule", str(ref), key)

    # dead letters

    async def summary(
        self, queue: str | None = None, since_ms: int | None = None, find: str = ""
    ) -> DeadLetterSummary:
        return canned_messages.dead_letters()

    async def letters(
        self, selector: LetterSelector, cursor: str | None, limit: int
    ) -> MessagePage:
        return canned_messages.message_page("chasqui:payments", "dead", n=9)

    async def select(self, selector: LetterSelector) -> LetterSelection:
        groups = [
            g for g in canned_messages.dead_letters().groups if _is_in(g.id, g.reason, selector)
        ]
        self.selected = len(selector.ids) or sum(group.count for group in groups)
        return LetterSelection(
            id="sel-1",
            at_ms=canned.now_ms(),
            count=self.selected,
            by_queue={"chasqui:payments": self.selected},
            by_name={"charge": self.selected},
            dry_run=f"{self.selected:,} would run again.",
            warning="The cause is still there: 96 % of the queue's runs fail now.",
        )

    def _started(self, verb: str, *call: Any) -> Operation:
        self.calls.append(call)
        made = canned_messages.operation(verb, self.selected, "chasqui:payments")
        self._operations = [made]
        return made

    def replay(self, selection_id: str, *, per_s: float | None = None, ahead: int = 0) -> Operation:
        return self._started("replay", "replay", selection_id, per_s, ahead)

    async def selected_body(self, selection_id: str) -> Body:
        self.calls.append(("selected_body", selection_id))
        return decode_body(b'{"order": 2}')

    async def edit_and_replay(self, selection_id: str, body: str, encoding: str) -> ActionResult:
        return self._did("edit_and_replay", selection_id, body, encoding)

    def discard(self, selection_id: str, typed_count: int) -> Operation:
        return self._started("delete", "discard", selection_id, typed_count)

    async def undo(self, id: str) -> Operation:
        self.calls.append(("undo", id))
        [done] = self._operations
        text = "Undone: they are back."
        undone = msgspec.structs.replace(done, state="undone", text=text, undo_until_ms=None)
        self._operations = [undone]
        return undone

    async def stop_operation(self, id: str) -> Operation:
        return await self.undo(id)

    def operations(self) -> list[Operation]:
        return list(self._operations)

    # audit

    async def record(self, entry: AuditEntry) -> None:
        self.calls.append(("audit", entry.verb, entry.target, entry.outcome))

    async def entries(self, limit: int) -> list[AuditEntry]:
        return canned.audit()


def _is_in(group: str, reason: str, selector: LetterSelector) -> bool:
    return group in selector.groups or reason in selector.reasons
