"""A handler's error is reported: in the log, in the dead letter and in the journal."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import redis

from tambomq.journal.keys import JournalKeys
from tambomq.rsmq import Message, Rsmq, RsmqWorker
from tests.rsmq.working import AT_ONCE, send, working
from tests.servers import Server, eventually_async


async def no_key(_: Message) -> Any:
    return dict[str, Any]()["to"]


async def test_a_dead_letter_has_the_error_and_its_traceback(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    await send(server, "poison")
    worker = RsmqWorker("q", no_key, url=server.url, max_receives=1, journal=True)
    async with working(worker):
        await eventually_async(lambda: worker.stats.buried == 1)
    [dead] = rsmq.peek_messages("q-dead")
    assert dead.reason == "KeyError: 'to'"
    assert dead.traceback is not None
    assert "in no_key" in dead.traceback
    assert '["to"]' in dead.traceback
    # The journal has the reason alone.
    rows: Any = db.xrange(JournalKeys("rsmq", "q").journal)
    dead_events = [fields for _, fields in rows if fields[b"e"] == b"dead"]
    assert [fields[b"r"] for fields in dead_events] == [b"KeyError: 'to'"]


async def test_failures_are_warnings_and_repeats_are_counted(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    await send(server, *(f"m{number}" for number in range(20)))
    worker = RsmqWorker("q", no_key, url=server.url, max_receives=2, backoff=AT_ONCE, concurrency=1)
    async with working(worker):
        await eventually_async(lambda: worker.stats.buried == 20)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    first, *others = [record for record in warnings if "KeyError" in record.getMessage()]
    assert "of queue 'q' failed in run 1: KeyError: 'to'" in first.getMessage()
    assert first.exc_info is not None
    assert "failed 39 more times" in others[-1].getMessage()
