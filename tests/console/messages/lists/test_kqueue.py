"""KqueueMsgQ stores nothing: lists have what its journal recorded, or say why they are empty."""

from __future__ import annotations

from typing import Any

import redis

from tambomq.console.messages.pages import list_messages
from tambomq.console.model import QueueRef
from tambomq.journal.keys import JournalKeys
from tambomq.store.aio import AsyncStore

TICKS = QueueRef("kqueue", "ticks")


async def test_without_a_journal_the_list_says_why_it_is_empty(aio: AsyncStore) -> None:
    waiting = await list_messages(aio, TICKS, "visible")
    assert (waiting.rows, waiting.total) == ([], 0)
    assert "stores no messages" in waiting.note
    done = await list_messages(aio, TICKS, "done")
    assert (done.rows, done.next) == ([], None)
    assert "--journal" in done.note


async def test_what_the_journal_recorded_is_done_newest_first(
    aio: AsyncStore, db: redis.Redis
) -> None:
    journal = JournalKeys("kqueue", "ticks").journal
    for number in range(5):
        fields: dict[Any, Any] = {"e": "sent", "ts": f"{number}", "to": "2", "d": f"tick {number}"}
        db.xadd(journal, fields, id=f"{number + 1}-0")
    first = await list_messages(aio, TICKS, "done", limit=3)
    rest = await list_messages(aio, TICKS, "done", limit=3, cursor=first.next)
    rows = [*first.rows, *rest.rows]
    assert [row.preview for row in rows] == [f"tick {n}" for n in (4, 3, 2, 1, 0)]
    assert [row.id for row in rows] == [f"{n}-0" for n in (5, 4, 3, 2, 1)]
    assert (first.note, rest.next) == ("", None)
