"""The handlers of the API's routes: each calls one part and returns its value."""

from __future__ import annotations

import asyncio
from typing import Final

from tambomq.console.actions.model import (
    ActionResult,
    DeadLetterSummary,
    LetterSelection,
    LetterSelector,
    Operation,
)
from tambomq.console.http import requests as types
from tambomq.console.http.parts import ConsoleParts
from tambomq.console.http.requests import NoBody, NoParameters
from tambomq.console.messages.model import Body, MessageDetail, MessagePage
from tambomq.console.model import Overview, PipelineStatus, QueueDetail, QueueRef
from tambomq.errors import StoreError, TamboError

MAX_FOUND: Final = 20
"""Queues that a search returns."""
MAX_SEARCHED: Final = 50
"""Queues in which a message is searched by its id."""
_MIN_ID: Final = 6


async def overview(parts: ConsoleParts, _: NoParameters, __: NoBody) -> Overview:
    """Return every queue."""
    return await parts.source.latest()


async def queue(parts: ConsoleParts, query: types.QueueQuery, _: NoBody) -> QueueDetail:
    """Return one queue."""
    return await parts.reader.queue(QueueRef.parse(query.queue))


async def messages(parts: ConsoleParts, query: types.MessagesQuery, _: NoBody) -> MessagePage:
    """Return some messages of a queue."""
    return await parts.messages.list_messages(
        QueueRef.parse(query.queue),
        query.state,
        cursor=query.cursor or None,
        limit=query.limit,
        find=query.find,
        name=query.name,
    )


async def message(parts: ConsoleParts, query: types.MessageQuery, _: NoBody) -> MessageDetail:
    """Return one message."""
    return await parts.messages.read_message(QueueRef.parse(query.queue), query.id)


async def workers(parts: ConsoleParts, query: types.WorkersQuery, _: NoBody) -> types.WorkerList:
    """Return workers and leaders."""
    if query.queue is not None:
        QueueRef.parse(query.queue)
    found, leaders = await asyncio.gather(parts.reader.workers(query.queue), parts.reader.leaders())
    of_queue = [each for each in leaders if query.queue in (None, each.queue)]
    return types.WorkerList(workers=found, leaders=of_queue)


async def schedules(parts: ConsoleParts, _: NoParameters, __: NoBody) -> types.ScheduleList:
    """Return recurring jobs."""
    return types.ScheduleList(schedules=await parts.reader.schedules())


async def pipeline(parts: ConsoleParts, _: NoParameters, __: NoBody) -> PipelineStatus:
    """Return the state of the pipeline."""
    if parts.pipeline is None:
        return PipelineStatus(lake=None, note="This process does not know of a lake.")
    return await parts.pipeline()


async def audit(parts: ConsoleParts, query: types.AuditQuery, _: NoBody) -> types.AuditList:
    """Return the audit log."""
    return types.AuditList(entries=await parts.audit.entries(query.limit))


async def find(parts: ConsoleParts, query: types.FindQuery, _: NoBody) -> types.FindResult:
    """Return queues by name, and messages by id."""
    refs, text = await parts.reader.refs(), query.text.strip().casefold()
    named = [str(ref) for ref in refs if text in str(ref).casefold()]
    # KqueueMsgQ keeps no messages.
    kept = [ref for ref in refs if ref.protocol != "kqueue"] if len(text) >= _MIN_ID else []
    looked_at = kept[:MAX_SEARCHED]
    found = await asyncio.gather(*(_by_id(parts, ref, query.text.strip()) for ref in looked_at))
    return types.FindResult(
        queues=named[:MAX_FOUND],
        messages=[each for each in found if each is not None],
        cut_off=len(named) > MAX_FOUND or len(kept) > len(looked_at),
    )


async def _by_id(parts: ConsoleParts, ref: QueueRef, id: str) -> types.FoundMessage | None:
    try:
        row = (await parts.messages.read_message(ref, id)).row
    except StoreError:
        raise
    except TamboError:
        # It is not there, or that protocol has no such ids.
        return None
    return types.FoundMessage(queue=row.queue, id=row.id, state=row.state)


async def operations(parts: ConsoleParts, _: NoParameters, __: NoBody) -> types.OperationList:
    """Return the latest operations."""
    return types.OperationList(operations=parts.actions.operations())


async def pause(
    parts: ConsoleParts, query: types.QueueQuery, body: types.QueueAction
) -> ActionResult:
    """Hand out no more messages of a queue."""
    ref = QueueRef.parse(query.queue)
    if body.dry_run:
        return await parts.actions.count_for(ref, "pause")
    return await parts.actions.pause(ref)


async def resume(
    parts: ConsoleParts, query: types.QueueQuery, body: types.QueueAction
) -> ActionResult:
    """Hand out messages of a queue again."""
    ref = QueueRef.parse(query.queue)
    if body.dry_run:
        return await parts.actions.count_for(ref, "resume")
    return await parts.actions.resume(ref)


async def purge(
    parts: ConsoleParts, query: types.QueueQuery, body: types.QueueAction
) -> ActionResult:
    """Delete all messages of a queue."""
    ref = QueueRef.parse(query.queue)
    if body.dry_run:
        return await parts.actions.count_for(ref, "purge")
    return await parts.actions.purge(ref, body.expected)


async def drain(
    parts: ConsoleParts, query: types.QueueQuery, body: types.QueueAction
) -> ActionResult:
    """Delete the messages of a queue that wait."""
    ref = QueueRef.parse(query.queue)
    if body.dry_run:
        return await parts.actions.count_for(ref, "drain")
    return await parts.actions.drain(ref, body.expected)


async def send(
    parts: ConsoleParts, query: types.QueueQuery, body: types.SendRequest
) -> ActionResult:
    """Send a message."""
    return await parts.actions.send(
        QueueRef.parse(query.queue),
        body.body,
        body.encoding,
        name=body.name,
        delay_s=body.delay_s,
        job_id=body.job_id,
        attempts=body.attempts,
    )


async def run_now(parts: ConsoleParts, query: types.MessageQuery, _: NoBody) -> ActionResult:
    """Let a delayed message run now."""
    return await parts.actions.run_now(QueueRef.parse(query.queue), query.id)


async def cancel(
    parts: ConsoleParts, query: types.MessageQuery, body: types.CancelRequest
) -> ActionResult:
    """Cancel a job."""
    return await parts.actions.cancel(QueueRef.parse(query.queue), query.id, body.reason)


async def delete(parts: ConsoleParts, query: types.MessageQuery, _: NoBody) -> ActionResult:
    """Delete a message."""
    return await parts.actions.delete(QueueRef.parse(query.queue), query.id)


async def edit(
    parts: ConsoleParts, query: types.MessageQuery, body: types.EditRequest
) -> ActionResult:
    """Give a message another body and let it run."""
    return await parts.actions.edit_and_run(
        QueueRef.parse(query.queue), query.id, body.body, body.encoding
    )


async def run_schedule(parts: ConsoleParts, query: types.ScheduleQuery, _: NoBody) -> ActionResult:
    """Fire a recurring job now."""
    return await parts.actions.run_schedule(QueueRef.parse(query.queue), query.key)


async def skip_schedule(parts: ConsoleParts, query: types.ScheduleQuery, _: NoBody) -> ActionResult:
    """Leave out the next fire of a recurring job."""
    return await parts.actions.skip_schedule(QueueRef.parse(query.queue), query.key)


async def dead_letters(
    parts: ConsoleParts, query: types.LettersSummaryQuery, _: NoBody
) -> DeadLetterSummary:
    """Return what died of what."""
    return await parts.actions.summary(query.queue, query.since_ms, query.find)


async def letters(parts: ConsoleParts, query: types.LettersQuery, _: NoBody) -> MessagePage:
    """Return some dead letters."""
    selector = LetterSelector(
        queue=query.queue, groups=query.groups, reasons=query.reasons, find=query.find
    )
    return await parts.actions.letters(selector, query.cursor or None, query.limit)


async def select(parts: ConsoleParts, _: NoParameters, body: LetterSelector) -> LetterSelection:
    """Fix and count dead letters."""
    return await parts.actions.select(body)


async def replay(parts: ConsoleParts, query: types.IdPath, body: types.ReplayRequest) -> Operation:
    """Run selected letters again."""
    return parts.actions.replay(query.id, per_s=body.per_s, ahead=body.ahead)


async def selected_body(parts: ConsoleParts, query: types.IdPath, _: NoBody) -> Body:
    """Return the body of the one letter of a selection."""
    return await parts.actions.selected_body(query.id)


async def edit_and_replay(
    parts: ConsoleParts, query: types.IdPath, body: types.EditRequest
) -> ActionResult:
    """Run a selected letter again, with another body."""
    return await parts.actions.edit_and_replay(query.id, body.body, body.encoding)


async def discard(
    parts: ConsoleParts, query: types.IdPath, body: types.DiscardRequest
) -> Operation:
    """Delete selected letters."""
    return parts.actions.discard(query.id, body.typed_count)


async def undo(parts: ConsoleParts, query: types.IdPath, _: NoBody) -> Operation:
    """Take back an operation."""
    return await parts.actions.undo(query.id)


async def stop(parts: ConsoleParts, query: types.IdPath, _: NoBody) -> Operation:
    """End an operation that runs."""
    return await parts.actions.stop_operation(query.id)
