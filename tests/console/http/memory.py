"""The parts of a console in memory, for tests of HTTP alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tambomq.console.actions.model import (
    ActionResult,
    AuditEntry,
    DeadLetterSummary,
    LetterSelection,
    LetterSelector,
    Operation,
)
from tambomq.console.http.app import console_app
from tambomq.console.http.console import Console
from tambomq.console.http.options import ConsoleOptions
from tambomq.console.http.parts import ConsoleParts
from tambomq.console.messages.model import (
    Body,
    Explanation,
    MessageDetail,
    MessagePage,
    MessageRow,
    MessageState,
)
from tambomq.console.model import (
    LeaderRow,
    Overview,
    QueueDetail,
    QueueRef,
    QueueRow,
    RedisStatus,
    ScheduleRow,
    Series,
    Totals,
    WorkerRow,
)
from tambomq.errors import MessageNotFound, QueueNotFound

PAYMENTS, ORDERS = QueueRef("chasqui", "payments"), QueueRef("rsmq", "orders")
NO_SERIES = Series(times_ms=[], values={})


def row(ref: QueueRef, depth: int = 3) -> QueueRow:
    return QueueRow(
        queue=str(ref),
        protocol=ref.protocol,
        name=ref.name,
        depth=depth,
        in_per_s=2.0,
        out_per_s=6.0,
        done_per_s=2.0,
    )


def overview(at_ms: int = 1, depth: int = 3) -> Overview:
    return Overview(
        at_ms=at_ms,
        redis=RedisStatus(ok=True, url="redis://127.0.0.1:6379"),
        totals=Totals(
            in_per_s=1.5,
            out_per_s=1.0,
            failed_per_s=0.0,
            dead=2,
            dead_last_hour=1,
            backlog=6,
            workers=1,
        ),
        throughput=NO_SERIES,
        queues=[row(PAYMENTS, depth), row(ORDERS, depth)],
    )


class MemoryReader:
    """Two queues; *failure* is raised by every read."""

    def __init__(self) -> None:
        self.failure: Exception | None = None

    async def queue(self, ref: QueueRef) -> QueueDetail:
        self._fail()
        if ref not in (PAYMENTS, ORDERS):
            raise QueueNotFound(ref.name)
        return QueueDetail(at_ms=1, row=row(ref), settings=[], throughput=NO_SERIES)

    async def workers(self, queue: str | None = None) -> list[WorkerRow]:
        self._fail()
        every = [WorkerRow(queue=str(PAYMENTS), id="w1", kind="worker", alive=True, holds=1)]
        return [each for each in every if queue in (None, each.queue)]

    async def leaders(self) -> list[LeaderRow]:
        return [LeaderRow(queue=str(PAYMENTS), promoter="p", scheduler=None)]

    async def schedules(self) -> list[ScheduleRow]:
        found = ScheduleRow(queue=str(PAYMENTS), key="k", name="n", pattern="every 1 m", next_ms=5)
        return [found]

    async def refs(self) -> list[QueueRef]:
        self._fail()
        return [PAYMENTS, ORDERS]

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


class MemorySource:
    """Overviews that a test publishes."""

    def __init__(self) -> None:
        self.last = overview()
        self.watchers = 0
        self._changed = asyncio.Event()

    def publish(self, value: Overview) -> None:
        self.last = value
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[AsyncIterator[Overview]]:
        self.watchers += 1
        try:
            yield self._updates()
        finally:
            self.watchers -= 1

    async def latest(self) -> Overview:
        return self.last

    async def _updates(self) -> AsyncIterator[Overview]:
        while True:
            changed = self._changed
            yield self.last
            await changed.wait()


class MemoryMessages:
    """One message, ``m-00001``, in the first queue."""

    def __init__(self) -> None:
        self.row = MessageRow(queue=str(PAYMENTS), id="m-00001", state="visible")

    async def list_messages(
        self, ref: QueueRef, state: MessageState, **options: Any
    ) -> MessagePage:
        rows = [self.row][: options["limit"]] if ref == PAYMENTS and state == "visible" else []
        return MessagePage(
            queue=str(ref), state=state, rows=rows, next=None, total=len(rows), looked_at=1
        )

    async def read_message(self, ref: QueueRef, id: str) -> MessageDetail:
        if ref != PAYMENTS or id != self.row.id:
            raise MessageNotFound(ref.name, id)
        body = Body(size_bytes=2, cut_off=False, best="text", text="hi")
        why = Explanation(headline="It is the next.")
        return MessageDetail(at_ms=1, row=self.row, why=why, body=body, facts=[])


class MemoryActions:
    """Writes down what was called; *running* are its operations."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.running: list[Operation] = []
        self.count = 3

    async def count_for(self, ref: QueueRef, verb: str) -> ActionResult:
        return ActionResult(text=f"Would {verb} {ref}.", count=self.count)

    async def summary(
        self, queue: str | None = None, since_ms: int | None = None, find: str = ""
    ) -> DeadLetterSummary:
        self.calls.append(("summary", (queue, since_ms, find)))
        return DeadLetterSummary(
            at_ms=1,
            total=0,
            by_queue={},
            by_reason={},
            groups=[],
            per_minute=NO_SERIES,
            looked_at=0,
        )

    async def letters(
        self, selector: LetterSelector, cursor: str | None = None, limit: int = 50
    ) -> MessagePage:
        self.calls.append(("letters", (selector, cursor, limit)))
        return MessagePage(
            queue=selector.queue or "", state="dead", rows=[], next=None, total=0, looked_at=0
        )

    async def select(self, selector: LetterSelector) -> LetterSelection:
        self.calls.append(("select", selector))
        return LetterSelection(
            id="s1", at_ms=1, count=0, by_queue={}, by_name={}, dry_run="Nothing."
        )

    def operations(self) -> list[Operation]:
        return self.running

    def replay(self, selection_id: str, *, per_s: float | None = None, ahead: int = 0) -> Operation:
        self.calls.append(("replay", (selection_id, per_s, ahead)))
        return operation(selection_id)

    def discard(self, selection_id: str, typed_count: int) -> Operation:
        self.calls.append(("discard", (selection_id, typed_count)))
        return operation(selection_id)

    def __getattr__(self, verb: str) -> Any:
        async def act(*args: Any, **options: Any) -> ActionResult | Operation:
            self.calls.append((verb, (*args, *(each for each in options.items() if each[1]))))
            if verb in ("undo", "stop_operation"):
                return operation(args[0])
            return ActionResult(text=f"Did {verb} {args[0]}.")

        return act


def operation(id: str, done: int = 0) -> Operation:
    return Operation(
        id=id,
        verb="replay",
        queue=str(PAYMENTS),
        wanted=3,
        done=done,
        failed=0,
        state="running",
        text="Replays 3.",
    )


class MemoryAudit:
    """Keeps entries in a list."""

    def __init__(self) -> None:
        self.kept: list[AuditEntry] = []

    async def record(self, entry: AuditEntry) -> None:
        self.kept.append(entry)

    async def entries(self, limit: int) -> list[AuditEntry]:
        return self.kept[::-1][:limit]


class MemoryConsole:
    """A console with all of these parts, and its application."""

    def __init__(self, **options: Any) -> None:
        self.reader, self.source = MemoryReader(), MemorySource()
        self.messages, self.actions = MemoryMessages(), MemoryActions()
        self.audit = MemoryAudit()
        self.clock_s = 1000.0
        self.console = Console(ConsoleOptions(**options), lambda: self.clock_s)
        self.app = console_app(self.console, plain_index="plain\n")

    def open(self) -> None:
        """Make the parts known; needs an event loop."""
        self.console.open(self.parts)

    @property
    def parts(self) -> ConsoleParts:
        return ConsoleParts(
            self.reader,
            self.source,
            self.messages,
            self.actions,
            self.audit,
        )
