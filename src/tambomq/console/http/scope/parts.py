"""The readers of the console for a user with rights to some queues.

Nothing of other queues goes through: no names, counts, bodies or errors. What cannot be told apart
by queue (the throughput of all, the pipeline, the audit log of others) is left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec

from tambomq.access.directory import UserSession
from tambomq.access.model import Right
from tambomq.console.actions.model import AuditEntry
from tambomq.console.http.parts import ConsoleParts, MessageReader, OverviewSource, QueueReader
from tambomq.console.http.scope.actions import ScopedActions, Selections
from tambomq.console.messages.model import MessageDetail, MessagePage, MessageState
from tambomq.console.model import (
    LeaderRow,
    Overview,
    PipelineStatus,
    QueueDetail,
    QueueRef,
    QueueRow,
    ScheduleRow,
    Series,
    Totals,
    WorkerRow,
)

_NO_SERIES = Series(times_ms=[], values={})
_ALL = "*"
"""How a connection shows that it is subscribed to all queues."""


def scoped(
    parts: ConsoleParts, session: UserSession | None, selections: Selections
) -> ConsoleParts:
    """Return *parts* as the user of *session* may use them; without one, as they are."""
    if session is None:
        return parts
    access = QueueAccess(session)
    return replace(
        parts,
        reader=_ScopedReader(parts.reader, access),
        source=_ScopedSource(parts.source, access),
        messages=_ScopedMessages(parts.messages, access),
        actions=ScopedActions(parts.actions, access, selections),
        audit=_ScopedAuditLog(parts, access),
        pipeline=parts.pipeline if access.has_all("look") else _no_pipeline,
    )


class QueueAccess:
    """The rights of one session to the queues of the console."""

    def __init__(self, session: UserSession) -> None:
        self.session = session

    def require(self, right: Right, ref: QueueRef) -> None:
        """Raise `AccessDenied` unless the user has *right* on *ref*; `NotAuthenticated`."""
        self.session.require(right, ref.protocol, ref.name)

    def has(self, right: Right, queue: str) -> bool:
        """Return whether the user has *right* on *queue*, written as ``protocol:name``."""
        protocol, _, name = queue.partition(":")
        return bool(name) and self.session.allows(right, protocol, name)

    def has_all(self, right: Right) -> bool:
        """Return whether the user has *right* on all queues there may be."""
        return self.session.allows_all(right)


class _ScopedReader:
    """Reads the queues that the user may look at."""

    def __init__(self, reader: QueueReader, access: QueueAccess) -> None:
        self._reader, self._access = reader, access

    async def queue(self, ref: QueueRef) -> QueueDetail:
        self._access.require("look", ref)
        found = await self._reader.queue(ref)
        return msgspec.structs.replace(
            found,
            workers=self._workers(found.workers),
            schedules=[each for each in found.schedules if self._looks_at(each.queue)],
        )

    async def workers(self, queue: str | None = None) -> list[WorkerRow]:
        if queue is not None:
            self._access.require("look", QueueRef.parse(queue))
        return self._workers(await self._reader.workers(queue))

    async def leaders(self) -> list[LeaderRow]:
        return [each for each in await self._reader.leaders() if self._looks_at(each.queue)]

    async def schedules(self) -> list[ScheduleRow]:
        return [each for each in await self._reader.schedules() if self._looks_at(each.queue)]

    async def refs(self) -> list[QueueRef]:
        return [each for each in await self._reader.refs() if self._looks_at(str(each))]

    def _looks_at(self, queue: str) -> bool:
        return self._access.has("look", queue)

    def _workers(self, rows: Iterable[WorkerRow]) -> list[WorkerRow]:
        if self._access.has_all("look"):
            return list(rows)
        return [shown for each in rows if (shown := self._worker(each)) is not None]

    def _worker(self, row: WorkerRow) -> WorkerRow | None:
        """Return *row* without what it says about other queues."""
        protocol, colon, _ = row.queue.partition(":")
        seen = [
            name
            for name in row.subscriptions
            if name != _ALL and self._looks_at(f"{protocol}:{name}")
        ]
        # A connection belongs to no queue: it is shown if it receives from one that is seen.
        is_seen = self._looks_at(row.queue) if colon else bool(seen)
        if not is_seen:
            return None
        return msgspec.structs.replace(row, subscriptions=seen, note="" if not colon else row.note)


class _ScopedSource:
    """Overviews of the queues that the user may look at."""

    def __init__(self, source: OverviewSource, access: QueueAccess) -> None:
        self._source, self._access = source, access

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[AsyncIterator[Overview]]:
        async with self._source.watching() as updates:
            yield self._filtered(updates)

    async def latest(self) -> Overview:
        return self._shown(await self._source.latest())

    async def _filtered(self, updates: AsyncIterator[Overview]) -> AsyncIterator[Overview]:
        async for overview in updates:
            yield self._shown(overview)

    def _shown(self, overview: Overview) -> Overview:
        if self._access.has_all("look"):
            return overview
        queues = [each for each in overview.queues if self._access.has("look", each.queue)]
        return msgspec.structs.replace(
            overview, queues=queues, totals=_totals(queues), throughput=_NO_SERIES, cut_off=0
        )


class _ScopedMessages:
    """Reads the messages of queues that the user may look at."""

    def __init__(self, messages: MessageReader, access: QueueAccess) -> None:
        self._messages, self._access = messages, access

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
        self._access.require("look", ref)
        return await self._messages.list_messages(
            ref, state, cursor=cursor, limit=limit, find=find, name=name
        )

    async def read_message(self, ref: QueueRef, id: str) -> MessageDetail:
        self._access.require("look", ref)
        return await self._messages.read_message(ref, id)


class _ScopedAuditLog:
    """The audit log: a user sees what it did itself, unless it manages all queues."""

    def __init__(self, parts: ConsoleParts, access: QueueAccess) -> None:
        self._audit, self._access = parts.audit, access

    async def record(self, entry: AuditEntry) -> None:
        await self._audit.record(entry)

    async def entries(self, limit: int) -> list[AuditEntry]:
        found = await self._audit.entries(limit)
        if self._access.has_all("manage"):
            return found
        return [each for each in found if each.user == self._access.session.user]


async def _no_pipeline() -> PipelineStatus:
    return PipelineStatus(lake=None, note="Only who may look at all queues sees the pipeline.")


def _totals(queues: Iterable[QueueRow]) -> Totals:
    rows = list(queues)
    return Totals(
        in_per_s=sum(each.in_per_s for each in rows),
        out_per_s=sum(each.done_per_s for each in rows),
        failed_per_s=sum(each.failed_per_s or 0.0 for each in rows),
        dead=sum(each.dead or 0 for each in rows),
        dead_last_hour=None,
        backlog=sum(each.depth for each in rows),
        workers=0,
    )
