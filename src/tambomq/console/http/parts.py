"""What the console is made of: the interfaces of its readers and actions.

The API is written against these, so that it can be tested without Redis.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from tambomq.console.actions.model import (
    ActionResult,
    AuditEntry,
    DeadLetterSummary,
    LetterSelection,
    LetterSelector,
    Operation,
)
from tambomq.console.messages.model import Body, MessageDetail, MessagePage, MessageState
from tambomq.console.model import (
    LeaderRow,
    Overview,
    PipelineStatus,
    QueueDetail,
    QueueRef,
    ScheduleRow,
    WorkerRow,
)


class QueueReader(Protocol):
    """Reads queues."""

    async def queue(self, ref: QueueRef) -> QueueDetail:
        """Return one queue. Raises `QueueNotFound`."""

    async def workers(self, queue: str | None = None) -> list[WorkerRow]:
        """Return the workers, peers and connections, of one queue or of all."""

    async def leaders(self) -> list[LeaderRow]:
        """Return who leads ChasquiMQ queues."""

    async def schedules(self) -> list[ScheduleRow]:
        """Return recurring jobs."""

    async def refs(self) -> list[QueueRef]:
        """Return all queues that are known."""


class OverviewSource(Protocol):
    """Samples the overview, once for all viewers."""

    def watching(self) -> AbstractAsyncContextManager[AsyncIterator[Overview]]:
        """Provide an overview at each refresh."""

    async def latest(self) -> Overview:
        """Return the last overview; if Redis is lost, it says so."""


class MessageReader(Protocol):
    """Reads single messages."""

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
        """Return some messages of a queue."""

    async def read_message(self, ref: QueueRef, id: str) -> MessageDetail:
        """Return one message. Raises `MessageNotFound`."""


class QueueControl(Protocol):
    """Changes queues and messages."""

    async def pause(self, ref: QueueRef) -> ActionResult:
        """Hand out no more messages."""

    async def resume(self, ref: QueueRef) -> ActionResult:
        """Hand out messages again."""

    async def purge(self, ref: QueueRef, expected: int | None = None) -> ActionResult:
        """Delete all messages, if they are as many as *expected*."""

    async def drain(self, ref: QueueRef, expected: int | None = None) -> ActionResult:
        """Delete the messages that wait, if they are as many as *expected*."""

    async def count_for(self, ref: QueueRef, verb: str) -> ActionResult:
        """Return what *verb* would do, and to how many messages."""

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

    async def run_now(self, ref: QueueRef, id: str) -> ActionResult:
        """Let a delayed message run now."""

    async def cancel(self, ref: QueueRef, id: str, reason: str = "") -> ActionResult:
        """Cancel a job."""

    async def delete(self, ref: QueueRef, id: str) -> ActionResult:
        """Delete a message."""

    async def edit_and_run(self, ref: QueueRef, id: str, body: str, encoding: str) -> ActionResult:
        """Give a message another body and let it run."""

    async def run_schedule(self, ref: QueueRef, key: str) -> ActionResult:
        """Fire a recurring job now."""

    async def skip_schedule(self, ref: QueueRef, key: str) -> ActionResult:
        """Leave out the next fire of a recurring job."""


class LetterControl(Protocol):
    """Reads dead letters, and acts on many of them."""

    async def summary(
        self, queue: str | None = None, since_ms: int | None = None, find: str = ""
    ) -> DeadLetterSummary:
        """Return what died of what."""

    async def letters(
        self, selector: LetterSelector, cursor: str | None, limit: int
    ) -> MessagePage:
        """Return some dead letters."""

    async def select(self, selector: LetterSelector) -> LetterSelection:
        """Fix and count the letters that *selector* means."""

    def replay(self, selection_id: str, *, per_s: float | None = None, ahead: int = 0) -> Operation:
        """Run the selected letters again; stop unless the first *ahead* of them are done."""

    async def selected_body(self, selection_id: str) -> Body:
        """Return the body of the one selected letter."""

    async def edit_and_replay(self, selection_id: str, body: str, encoding: str) -> ActionResult:
        """Run the selected letter again with another body."""

    def discard(self, selection_id: str, typed_count: int) -> Operation:
        """Delete the selected letters."""

    async def undo(self, id: str) -> Operation:
        """Take back what an operation has done."""

    async def stop_operation(self, id: str) -> Operation:
        """End an operation that runs."""

    def operations(self) -> list[Operation]:
        """Return the latest operations."""


class ActionControl(QueueControl, LetterControl, Protocol):
    """All actions of the console."""


class AuditLog(Protocol):
    """Keeps what was done and what was refused."""

    async def record(self, entry: AuditEntry) -> None:
        """Keep *entry*. Never raises: what was done cannot be undone by an error here."""

    async def entries(self, limit: int) -> list[AuditEntry]:
        """Return the latest entries, newest first."""


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """Everything that the API calls."""

    reader: QueueReader
    source: OverviewSource
    messages: MessageReader
    actions: ActionControl
    audit: AuditLog
    pipeline: Callable[[], Awaitable[PipelineStatus]] | None = None
